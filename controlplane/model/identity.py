"""Identities: ULIDs, 26 characters that sort by time and stand for 16 bytes.

48 bits of milliseconds since 1970, then 80 random bits, in Crockford's base 32. Two identities from the same `Mint`
always sort in the order in which they were made, also within a millisecond.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from controlplane.model.errors import Invalid

LENGTH = 26
_ALPHABET = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
_SHAPE = re.compile(f"[{_ALPHABET}]{{{LENGTH}}}")
# Python's own base 32 counts 0-9, then a-v.
_TO_PYTHON = str.maketrans(_ALPHABET, "0123456789abcdefghijklmnopqrstuv")
# Two characters at a time.
_PAIRS = tuple(high + low for high in _ALPHABET for low in _ALPHABET)
_SHIFTS = tuple(range(120, -1, -10))
_CHANCE_BITS = 80
_MAX_MILLISECONDS = (1 << 48) - 1


def from_bytes(raw: bytes) -> str:
    if len(raw) != 16:
        raise Invalid("id", f"must be 16 bytes, not {len(raw)}")
    return _spelled(int.from_bytes(raw, "big"))


def _spelled(number: int) -> str:
    return "".join([_PAIRS[number >> shift & 1023] for shift in _SHIFTS])


def to_bytes(identity: str) -> bytes:
    return _number(identity, "id").to_bytes(16, "big")


def milliseconds(identity: str) -> int:
    """When the identity was made, in milliseconds since 1970."""
    return _number(identity, "id") >> _CHANCE_BITS


def check(identity: str, *, field: str = "id") -> str:
    """The identity itself; Invalid when the text is not a ULID in canonical spelling."""
    _number(identity, field)
    return identity


def _number(identity: str, field: str) -> int:
    if len(identity) != LENGTH:
        raise Invalid(field, f"must be a ULID of {LENGTH} characters, not {len(identity)}")
    if _SHAPE.fullmatch(identity) is None:
        raise Invalid(field, f"must be a ULID in upper-case Crockford base 32 ({_ALPHABET}), not {identity!r}")
    number = int(identity.translate(_TO_PYTHON), 32)
    if number >> 128:
        raise Invalid(field, "must be a ULID not above 7ZZZZZZZZZZZZZZZZZZZZZZZZZ")
    return number


class Mint:
    """Makes identities that increase strictly; time and random bytes are passed in."""

    def __init__(self, milliseconds: Callable[[], int], chance: Callable[[int], bytes]) -> None:
        self._milliseconds = milliseconds
        self._chance = chance
        self._last = 0

    def make(self) -> str:
        now = min(self._milliseconds(), _MAX_MILLISECONDS)
        if now > self._last >> _CHANCE_BITS:
            # Random bits once a millisecond; later identities within it count on from there.
            self._last = now << _CHANCE_BITS | int.from_bytes(self._chance(10), "big") >> 1
        else:
            self._last += 1
        return _spelled(self._last)
