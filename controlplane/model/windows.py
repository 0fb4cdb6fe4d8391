"""Opening times of a target: its availability windows, asked at a moment that the caller names.

A window is a span of the local clock: at 08:00-18:00 in Europe/Berlin a target is open whenever a clock in Berlin shows
such a time, so that a span within a skipped hour does not happen, and a span within a repeated hour happens twice.
Pure; a window that admission would refuse is never open.
"""

from __future__ import annotations

import re
import zoneinfo
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta, tzinfo
from functools import lru_cache

from controlplane.model.target import Window

DAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
_DAY = 24 * 60
_WEEK = 7 * _DAY
_ONE_DAY = timedelta(days=1)
# A span in a skipped hour happens a week later; no hour is skipped twice in a row.
_HORIZON_DAYS = 16
# The most windows of a target: each costs time whenever the next opening is computed.
MAX_ZONES = 4
# The longest name of a time zone has half as many characters.
_LONGEST_NAME = 64
_TIME = re.compile(r"([01][0-9]|2[0-3]):([0-5][0-9])|24:00")


def minutes(text: str) -> int | None:
    """Minutes since midnight of HH:MM, up to 24:00; None for any other text."""
    match = _TIME.fullmatch(text)
    if match is None:
        return None
    return int(match[1]) * 60 + int(match[2]) if match[1] else _DAY


def zone(name: str) -> tzinfo | None:
    """The time zone of this name, or None. Texts that are too long for a name are not cached."""
    return _zone(name) if len(name) <= _LONGEST_NAME else None


@lru_cache(maxsize=1000)
def _zone(name: str) -> tzinfo | None:
    if name == "UTC":
        return UTC
    try:
        return zoneinfo.ZoneInfo(name)
    except (zoneinfo.ZoneInfoNotFoundError, ValueError, OSError):
        return None


def is_open(windows: Sequence[Window], now: datetime) -> bool:
    """Without windows: always."""
    return not windows or any(week.holds(now) for week in _compiled(tuple(windows)))


def next_change(windows: Sequence[Window], now: datetime) -> datetime | None:
    """When the target next opens or closes, in UTC; None when it never does."""
    weeks = _compiled(tuple(windows))
    if not weeks or any(week.always() for week in weeks):
        return None
    before = is_open(windows, now)
    start = now.astimezone(UTC)
    for day in range(_HORIZON_DAYS):
        begin = start + day * _ONE_DAY
        moments = sorted({moment for week in weeks for moment in week.turns(begin, begin + _ONE_DAY)})
        changed = (moment for moment in moments if is_open(windows, moment) != before)
        if (change := next(changed, None)) is not None:
            return change
    return None


def next_opening(windows: Sequence[Window], now: datetime) -> datetime | None:
    """The first open moment from now on: now itself when open; None when the target never opens."""
    return now if is_open(windows, now) else next_change(windows, now)


@dataclass(frozen=True, slots=True)
class _Week:
    """The open spans by the clocks of a zone, in minutes since Monday 00:00: openings and closings in turn, ascending.

    A span over the end of the week is cut in two there.
    """

    zone: tzinfo
    edges: tuple[int, ...]

    def always(self) -> bool:
        return self.edges == (0, _WEEK)

    def holds(self, now: datetime) -> bool:
        local = now.astimezone(self.zone)
        minute = local.weekday() * _DAY + local.hour * 60 + local.minute
        return bisect_right(self.edges, minute) % 2 == 1

    def turns(self, after: datetime, until: datetime) -> Iterator[datetime]:
        """Every moment in between at which the target may open or close: at an edge, or where the clocks change."""
        first, last = after.astimezone(self.zone), until.astimezone(self.zone)
        for ordinal in range(first.toordinal() - 1, last.toordinal() + 2):
            for moment in self._edges_on(date.fromordinal(ordinal)):
                if after < moment <= until:
                    yield moment
        if first.utcoffset() != last.utcoffset():
            yield self._clock_change(after, until)

    def _edges_on(self, day: date) -> Iterator[datetime]:
        begin = day.weekday() * _DAY
        for edge in self.edges:
            if begin <= edge % _WEEK < begin + _DAY:
                at = time((edge - begin) % _WEEK // 60, edge % 60)
                for fold in (0, 1):
                    yield datetime.combine(day, at, self.zone).replace(fold=fold).astimezone(UTC)

    def _clock_change(self, before: datetime, after: datetime) -> datetime:
        """The second at which the zone's clocks change, between two moments with different clocks."""
        old = before.astimezone(self.zone).utcoffset()
        low, high = int(before.timestamp()), int(after.timestamp()) + 1
        while high - low > 1:
            middle = (low + high) // 2
            if datetime.fromtimestamp(middle, self.zone).utcoffset() == old:
                low = middle
            else:
                high = middle
        return datetime.fromtimestamp(high, UTC)


@lru_cache(maxsize=4096)
def _compiled(windows: tuple[Window, ...]) -> tuple[_Week, ...]:
    spans: dict[tzinfo, list[tuple[int, int]]] = {}
    for window in windows:
        place = zone(window.tz)
        if place is not None:
            spans.setdefault(place, []).extend(_spans(window))
    return tuple(_Week(place, _merged(found)) for place, found in spans.items() if found)


def _spans(window: Window) -> Iterator[tuple[int, int]]:
    """The minutes of the week that the window covers, each span inside of a single week."""
    begin, end = minutes(window.from_), minutes(window.to)
    if begin is None or end is None:
        return
    length = end - begin if end > begin else end - begin + _DAY
    for day in window.days or DAYS:
        if day not in DAYS:
            continue
        start = (DAYS.index(day) * _DAY + begin) % _WEEK
        yield start, min(start + length, _WEEK)
        if start + length > _WEEK:
            yield 0, start + length - _WEEK


def _merged(spans: Sequence[tuple[int, int]]) -> tuple[int, ...]:
    edges: list[int] = []
    for start, end in sorted(spans):
        if edges and start <= edges[-1]:
            edges[-1] = max(edges[-1], end)
        else:
            edges += (start, end)
    return tuple(edges)
