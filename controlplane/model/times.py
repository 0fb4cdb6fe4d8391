"""Times as the system writes them: RFC 3339 in UTC, milliseconds, `Z`. Times stamp records; they decide nothing.

`parse` reads every time of the calendar. `check` is the rule of admission and of readers of etcd: the years 1970 to
2199, so that every such time can be moved by years, and into any zone, without leaving the calendar.
"""

from __future__ import annotations

from datetime import UTC, datetime

from controlplane.model.errors import Invalid

FIRST, LAST = datetime(1970, 1, 1, tzinfo=UTC), datetime(2200, 1, 1, tzinfo=UTC)
# No spelling of a time is longer; longer texts are refused unread.
LONGEST = 40


def show(moment: datetime) -> str:
    return moment.astimezone(UTC).isoformat(timespec="milliseconds").removesuffix("+00:00") + "Z"


def parse(text: str, field: str) -> datetime:
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise Invalid(field, f"{text[:80]!r} is not an RFC 3339 time such as 2026-12-01T00:00:00Z") from None
    if moment.tzinfo is None:
        raise Invalid(field, f"{text!r} has no time zone; write Z at its end for UTC")
    try:
        return moment.astimezone(UTC)
    except OverflowError:
        raise Invalid(field, f"{text!r} is outside of the years 1 to 9999 in UTC") from None


def check(text: str, field: str) -> datetime:
    """The moment; Invalid for a text that is no time, or outside of the years 1970 to 2199."""
    if len(text) > LONGEST:
        raise Invalid(field, f"must be an RFC 3339 time of at most {LONGEST} characters, but has {len(text)}")
    moment = parse(text, field)
    if not FIRST <= moment < LAST:
        raise Invalid(field, f"must be in the years 1970 to 2199, not {text!r}")
    return moment


def is_sane(text: str) -> bool:
    """Whether `check` lets the text pass. Asked for every record that is read, with a short way for stamps."""
    if len(text) == 24 and text[-1] == "Z" and "1970" <= text < "2200":
        try:
            datetime.fromisoformat(text)
        except ValueError:
            return False
        return True
    try:
        check(text, "")
    except Invalid:
        return False
    return True


def is_stamp(text: str) -> bool:
    """Whether the text is a time as the system writes it: only such texts sort by time."""
    try:
        return show(datetime.fromisoformat(text)) == text
    except (ValueError, OverflowError):
        return False
