"""Peeks into stored values: fields of encoded objects, found by their bytes instead of decoding the whole value.

Every replica hears of every change, and most changes need no action: a peek says so at a fraction of the cost of
decoding. Peeks rely on the encoder (`store/codec`): compact JSON, required fields always written, quotes in texts
escaped, so that no text looks like a field. Peeks are exact, except for `wants_stop`, which a label or a variable of
this name fools: decode the value before acting. A test holds each peek to the encoder.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import msgspec

from controlplane.cache.snapshot import Entry
from controlplane.model.fulfilment import Ended, Fulfilment
from controlplane.model.lifecycle import FINAL_ORDER
from controlplane.model.order import OrderStatus
from controlplane.model.target import Live, TargetStatus

_FAILED = b'"phase":"Failed"'
_FINAL = tuple(f'"phase":"{phase}"'.encode() for phase in FINAL_ORDER)
_NOT_OVER = (b'"decision":"retry"', b'"decision":"hold"')
_NONE_HELD = b'"held":0'
_STOP = b'"want":"stop"'


class _Owned(msgspec.Struct):
    """The part of a config object that `owner` reads; the decoder steps over all other fields."""

    owner: str = ""


_owned = msgspec.json.Decoder(_Owned)


def phase(entry: Entry[OrderStatus] | Entry[TargetStatus] | None) -> str:
    """The phase of an order or a target; empty when there is no status."""
    return _text(entry, b'"phase":"')


def session(entry: Entry[Live] | None) -> str:
    return _text(entry, b'"session":"')


def instance(entry: Entry[Live] | None) -> str:
    return _text(entry, b'"instance":"')


def owner(entry: Entry[Any] | None) -> str:
    """The owner of a config object; empty when there is no entry, or its value cannot be read."""
    try:
        return _owned.decode(entry.stored.value).owner if entry is not None else ""
    except msgspec.MsgspecError:
        return ""


def is_final(entry: Entry[OrderStatus]) -> bool:
    """Whether the order ended."""
    value = entry.stored.value
    return any(end in value for end in _FINAL)


def has_held_tasks(entry: Entry[OrderStatus]) -> bool:
    return _NONE_HELD not in entry.stored.value


def has_failed(entry: Entry[Ended]) -> bool:
    """Whether an attempt of the fulfilment failed."""
    return _FAILED in entry.stored.value


def goes_on(entry: Entry[Ended]) -> bool:
    """Whether a task of the fulfilment is tried again or held."""
    value = entry.stored.value
    return any(decision in value for decision in _NOT_OVER)


def with_index(entries: Iterable[Entry[Ended]], index: int) -> Iterator[Entry[Ended]]:
    """The entries in which a task of the index ended."""
    pattern = f'"index":{index},'.encode()
    return (entry for entry in entries if pattern in entry.stored.value)


def wants_stop(entry: Entry[Fulfilment]) -> bool:
    """False is certain; True means that the value has to be decoded."""
    return _STOP in entry.stored.value


def _text(entry: Entry[Any] | None, front: bytes) -> str:
    """The text between the front and the next quote; empty when the value has no such field."""
    if entry is None:
        return ""
    _, front, rest = entry.stored.value.partition(front)
    return rest.partition(b'"')[0].decode(errors="replace") if front else ""
