"""Times as the system writes them: RFC 3339 in UTC, milliseconds, `Z`. They stamp records; they decide nothing."""

from __future__ import annotations

from datetime import UTC, datetime

from controlplane.model.errors import Invalid


def show(moment: datetime) -> str:
    return moment.astimezone(UTC).isoformat(timespec="milliseconds").removesuffix("+00:00") + "Z"


def parse(text: str, field: str) -> datetime:
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise Invalid(field, f"{text!r} is not an RFC 3339 time such as 2026-12-01T00:00:00Z") from None
    if moment.tzinfo is None:
        raise Invalid(field, f"{text!r} has no time zone; write Z at its end for UTC")
    try:
        return moment.astimezone(UTC)
    except OverflowError:
        raise Invalid(field, f"{text!r} is outside of the years 1 to 9999 in UTC") from None


def is_stamp(text: str) -> bool:
    """Whether this is how the system writes a time: only such texts sort by time."""
    try:
        return show(datetime.fromisoformat(text)) == text
    except (ValueError, OverflowError):
        return False
