"""Quantities and durations as people write them (`500m`, `4Gi`, `2h`), and the plain numbers they stand for.

Inside the system, and in etcd, a quantity is a number of cores, bytes or other units, and a duration is a number of
seconds. Whole numbers are ints, so that JSON shows `2`, not `2.0`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping

from controlplane.model.bounds import LEAST_AMOUNT, MOST_AMOUNT
from controlplane.model.errors import Invalid

Number = int | float

MOST, LEAST = MOST_AMOUNT, LEAST_AMOUNT
# Amounts that differ by less are equal: sums of floats are not exact, and every amount is at least a thousand times it.
EPSILON = 1e-9

_QUANTITY = re.compile(
    # No more digits than any amount needs, so that every match is a finite number.
    r"([0-9]{1,40}(?:\.[0-9]{0,40})?|\.[0-9]{1,40})(?:[eE]([+-]?[0-9]{1,2}))?(m|k|M|G|T|P|Ki|Mi|Gi|Ti|Pi)?"
)
_QUANTITY_SUFFIX = {
    None: 1, "m": 0.001, "k": 10**3, "M": 10**6, "G": 10**9, "T": 10**12, "P": 10**15,
    "Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40, "Pi": 2**50,
}  # fmt: skip
_DURATION_PART = re.compile(r"([0-9]+(?:\.[0-9]+)?)(ms|s|m|h|d)")
_DURATION_SUFFIX = {"ms": 0.001, "s": 1, "m": 60, "h": 3600, "d": 86400}


def whole(number: Number) -> Number:
    """The same number, as an int when whole."""
    if isinstance(number, float) and number.is_integer():
        return int(number)
    return number


def check(number: Number, field: str) -> Number:
    """The number; Invalid when the number cannot be an amount."""
    if isinstance(number, bool) or not isinstance(number, int | float):
        raise Invalid(field, "must be a number, or a number with a suffix such as 500m or 4Gi")
    if isinstance(number, float) and not math.isfinite(number):
        raise Invalid(field, f"must be a finite number, not {number}")
    if number < 0:
        raise Invalid(field, f"must not be negative, but is {max(number, -MOST)}")
    if number > MOST:
        raise Invalid(field, f"must not be above {MOST:g}")
    if 0 < number < LEAST:
        raise Invalid(field, f"must be 0, or at least {LEAST:g}, not {number}")
    return whole(number)


def sane(amounts: Mapping[str, Number]) -> bool:
    """Whether all numbers can be amounts: admitted numbers are, numbers put into etcd by hand may not be."""
    for amount in amounts.values():  # noqa: SIM110 - asked of every fulfilment, on every replica
        if amount != 0 and not LEAST <= amount <= MOST:
            return False
    return True


def parse(text: object, field: str) -> Number:
    """A quantity as a person wrote it: a number, or text with a suffix."""
    if isinstance(text, str):
        match = _QUANTITY.fullmatch(text.strip())
        if match is None:
            raise Invalid(field, f"{text!r} is not a quantity such as 2, 500m or 4Gi")
        digits, exponent, suffix = match.groups()
        value = (float(digits) if "." in digits else int(digits)) * (10.0 ** int(exponent) if exponent else 1)
        scaled = value * _QUANTITY_SUFFIX[suffix]
        return check(round(scaled, 9) if isinstance(scaled, float) else scaled, field)
    return check(text, field)  # type: ignore[arg-type]


def parse_signed(text: object, field: str) -> Number:
    """A number of either sign, in the notation of quantities."""
    if isinstance(text, str) and text.strip().startswith("-"):
        return -parse(text.strip()[1:], field)
    if isinstance(text, int | float) and not isinstance(text, bool) and text < 0:
        return -check(-text, field)
    return parse(text, field)


def parse_duration(text: object, field: str) -> Number:
    """A duration in seconds from `30s`, `1h30m`, `500ms`, `2d` or a plain number of seconds."""
    if not isinstance(text, str):
        return check(text, field)  # type: ignore[arg-type]
    total: Number = 0
    position = 0
    stripped = text.strip()
    while position < len(stripped):
        match = _DURATION_PART.match(stripped, position)
        if match is None:
            break
        total += float(match[1]) * _DURATION_SUFFIX[match[2]]
        position = match.end()
    if not stripped or position != len(stripped):
        raise Invalid(field, f"{text!r} is not a duration such as 30s, 1h30m or 2d")
    return check(round(total, 6), field)


def show(name: str, number: Number) -> str:
    """For tables: bytes get a binary suffix where precise enough to read, other numbers stay."""
    if name in ("memory", "storage", "disk") and number >= 2**10:
        for suffix, size in (("Ti", 2**40), ("Gi", 2**30), ("Mi", 2**20), ("Ki", 2**10)):
            if number >= size:
                return f"{number / size:.4g}{suffix}"
    return f"{whole(round(number, 6))}"
