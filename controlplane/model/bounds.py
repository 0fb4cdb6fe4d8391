"""Bounds of the fields of stored structs, as types of these fields.

A range, a length or a pattern stands in the type itself, so that decoding checks it. Other bounds are named by a
`FieldRule` in the type and checked by `model/sane`: a text is a time of the years 1970 to 2199, an amount is 0 or at
least a millionth. No integer is wider than its field on the wire, and no quantity is too small or too large to count
with. Admission refuses the same values, so that every admitted object can be read.
"""

from __future__ import annotations

import re
from enum import StrEnum
from typing import Annotated, TypeVar

from msgspec import Meta

T = TypeVar("T")

INT32, INT64 = 2**31 - 1, 2**63 - 1
# Counts that are added up stay below, so that their sums fit, too.
MOST_COUNTED = 2**53
LEAST_AMOUNT, MOST_AMOUNT = 1e-6, 10**18
MOST_MEASURED = 1e300
MOST_SECONDS = 10 * 366 * 86400
MAX_TASKS = 1_000_000
MAX_LABELS = MAX_QUANTITIES = 64
MAX_LINE, MAX_TEXT = 256, 32 * 1024
# An object in etcd has at most 1.5 MiB, and so have its lists and texts.
MAX_ITEMS = 100_000
MAX_VALUE = 3 << 19
NAME = re.compile(r"[a-z0-9.-]{1,63}")


class FieldRule(StrEnum):
    """Rules that `model/sane` checks beyond the type of a field."""

    TIME = "time"
    TIME_OR_EMPTY = "time or empty"
    AMOUNTS = "amounts"
    MEASURES = "measures"


def is_name(text: str) -> bool:
    """Whether the text can name an object. Names become parts of keys and of paths on targets: dots alone do not."""
    return NAME.fullmatch(text) is not None and bool(text.strip("."))


# Texts: a name of an object; a line for people, or a word of the system; a text for programs; any text.
Name = Annotated[str, Meta(pattern=rf"^(?!\.+\Z){NAME.pattern}\Z")]
Line = Annotated[str, Meta(max_length=MAX_LINE)]
Text = Annotated[str, Meta(max_length=MAX_TEXT)]
LongText = Annotated[str, Meta(max_length=MAX_VALUE)]
Labels = Annotated[dict[Annotated[str, Meta(max_length=63)], Line], Meta(max_length=MAX_LABELS)]
Texts = Annotated[dict[Line, LongText], Meta(max_length=MAX_ITEMS)]
Time = Annotated[str, Meta(extra={"rule": FieldRule.TIME})]
TimeOrEmpty = Annotated[str, Meta(extra={"rule": FieldRule.TIME_OR_EMPTY})]

# Integers: by what they count, and never above their field on the wire.
Revision = Annotated[int, Meta(ge=0, le=INT64)]
Count = Annotated[int, Meta(ge=0, le=MOST_COUNTED)]
SmallCount = Annotated[int, Meta(ge=0, le=INT32)]
PositiveCount = Annotated[int, Meta(ge=1, le=INT32)]
TaskCount = Annotated[int, Meta(ge=0, le=MAX_TASKS)]
TaskIndex = Annotated[int, Meta(ge=0, lt=MAX_TASKS)]
TargetCount = Annotated[int, Meta(ge=0, le=1000)]
# Below the largest number of an attempt, so that attempts can be numbered above.
Attempts = Annotated[int, Meta(ge=0, le=10**9)]
Serial = Annotated[int, Meta(ge=0, le=10**9)]
PriorityStep = Annotated[int, Meta(ge=-99, le=99)]
Percent = Annotated[int, Meta(ge=0, le=100)]
Priority = Annotated[int, Meta(ge=1, le=100)]
ExitCode = Annotated[int, Meta(ge=-INT32 - 1, le=INT32)]

# Numbers, whole or not. JSON has no infinity and no NaN, so that each range is finite.
Seconds = Annotated[int, Meta(ge=0, le=MOST_SECONDS)] | Annotated[float, Meta(ge=0, le=MOST_SECONDS)]
Duration = Annotated[int, Meta(gt=0, le=MOST_SECONDS)] | Annotated[float, Meta(gt=0, le=MOST_SECONDS)]
Amount = Annotated[int, Meta(ge=0, le=MOST_AMOUNT)] | Annotated[float, Meta(ge=0, le=MOST_AMOUNT)]
Rate = Annotated[float, Meta(ge=0, le=MOST_AMOUNT)]
Weight = Annotated[int, Meta(ge=0, le=100)] | Annotated[float, Meta(ge=0, le=100)]
Preference = Annotated[int, Meta(ge=-100, le=100)] | Annotated[float, Meta(ge=-100, le=100)]
Amounts = Annotated[dict[Line, Amount], Meta(max_length=MAX_QUANTITIES, extra={"rule": FieldRule.AMOUNTS})]
# Measurements, sums and differences: of either sign.
Measures = Annotated[dict[Line, int | float], Meta(max_length=MAX_ITEMS, extra={"rule": FieldRule.MEASURES})]
Tally = Annotated[dict[Line, Count], Meta(max_length=MAX_ITEMS)]

# Lists: written by hand, or kept by the system.
Few = Annotated[tuple[T, ...], Meta(max_length=64)]
Many = Annotated[tuple[T, ...], Meta(max_length=MAX_ITEMS)]
