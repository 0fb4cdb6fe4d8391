"""The times of a recurring order: cron expressions by the clocks of a time zone, and the identity of each run. Pure.

Expressions have five fields, or six with seconds in front, as Debian's cron reads them. Where the clocks change, an
expression that names minute and hour happens once on that day: at the first real minute after a skipped time, and at
the first of two times that come twice. An expression with a `*` in front of its minute or hour, or with seconds,
follows real time: skipped times are left out, and repeated times happen again.
"""

from __future__ import annotations

import hashlib
from collections import deque
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from itertools import pairwise

from cronsim import CronSim, CronSimError

from controlplane.model import identity, times
from controlplane.model.bounds import Count, Line, TimeOrEmpty
from controlplane.model.errors import Invalid
from controlplane.model.object import Part
from controlplane.model.windows import zone

MISSED = ("skip", "last", "all")
OVERLAP = ("allow", "skip", "replace")
_LONGEST = 256
# Runs of a recurring order come no closer together, unless few runs are made in all.
LEAST_SECONDS = 10
FEW_RUNS = 100
_SECOND = timedelta(seconds=1)
# How much further back each next look goes.
_FURTHER = 4


class Schedule(Part, frozen=True, kw_only=True):
    """`missed`: the fate of runs whose time passed while no leader could make them; `overlap`: of a run whose time
    comes while an earlier run is open. `until` and `limit` bound the schedule: the last time, and the number of runs.
    """

    cron: Line = ""
    tz: Line = "UTC"
    missed: Line = "last"
    overlap: Line = "allow"
    until: TimeOrEmpty | None = None
    limit: Count | None = None


def check(schedule: Schedule, field: str = "schedule") -> None:
    """Invalid, with the field's path, for an unreadable schedule."""
    if len(schedule.cron) > _LONGEST:
        raise Invalid(f"{field}.cron", f"must not be longer than {_LONGEST} characters")
    if zone(schedule.tz) is None:
        raise Invalid(f"{field}.tz", f"must name a time zone such as Europe/Berlin, not {schedule.tz[:80]!r}")
    try:
        CronSim(schedule.cron, datetime(2000, 1, 1, tzinfo=UTC))
    except CronSimError as error:
        rule = f"must be a cron expression of 5 fields, or 6 with seconds in front: {error}"
        raise Invalid(f"{field}.cron", rule) from None
    for name, value, allowed in (("missed", schedule.missed, MISSED), ("overlap", schedule.overlap, OVERLAP)):
        if value not in allowed:
            raise Invalid(f"{field}.{name}", f"must be one of {', '.join(allowed)}, not {value[:80]!r}")
    if schedule.limit is not None and schedule.limit < 1:
        raise Invalid(f"{field}.limit", f"must be at least 1, not {schedule.limit}")
    if schedule.until is not None:
        times.check(schedule.until, f"{field}.until")


def check_interval(schedule: Schedule, field: str = "schedule") -> None:
    """Invalid when runs would come closer together than the least interval; `check` has passed before."""
    few = schedule.limit is not None and schedule.limit <= FEW_RUNS
    if not few and closest_seconds(schedule.cron) < LEAST_SECONDS:
        rule = f"must not name times less than {LEAST_SECONDS} s apart, unless limit is at most {FEW_RUNS}"
        raise Invalid(f"{field}.cron", rule)


def closest_seconds(cron: str) -> int:
    """The least distance between times of the expression. Below a minute only seconds and minutes matter."""
    parsed = CronSim(cron, datetime(2000, 1, 1, tzinfo=UTC))
    seconds = sorted(parsed.seconds)
    gaps = [later - earlier for earlier, later in pairwise(seconds)]
    if any((minute + 1) % 60 in parsed.minutes for minute in parsed.minutes):
        gaps.append(60 - seconds[-1] + seconds[0])
    return min(gaps, default=60)


def check_fires(schedule: Schedule, after: datetime, field: str = "schedule") -> None:
    """Invalid when no run would ever come."""
    if next_after(schedule, after) is not None:
        return
    if schedule.until is not None and next_after(_unbounded(schedule), after) is not None:
        raise Invalid(f"{field}.until", "must not be before the first run")
    raise Invalid(f"{field}.cron", "must name a time that comes: it never does within 50 years")


def next_after(schedule: Schedule, after: datetime) -> datetime | None:
    """The first time after the moment, in UTC; None when there is none within 50 years."""
    last = _last(schedule)
    first = next(_times(schedule, after), None)
    return first if first is not None and (last is None or first <= last) else None


def latest(schedule: Schedule, after: datetime, now: datetime, most: int) -> list[datetime]:
    """The last times, `most` at most, after `after` and not after `now`, ascending.

    Looks back from `now`, further and further, so that a long time with many runs is not counted through.
    """
    last = _last(schedule)
    end = now if last is None else min(now, last)
    span = most * _SECOND
    while True:
        start = max(after, _back(end, span))
        times_found: deque[datetime] = deque(maxlen=most)
        for moment in _times(schedule, start):
            if moment > end:
                break
            times_found.append(moment)
        if start == after or len(times_found) == most:
            return list(times_found)
        span *= _FURTHER


def run_identity(template: str, scheduled: datetime) -> str:
    """The identity of the template's run of this time: the same whoever makes the run, and however often."""
    milliseconds = int(scheduled.timestamp() * 1000).to_bytes(6, "big")
    chance = hashlib.blake2b(template.encode() + milliseconds, digest_size=10, person=b"controlplane-run").digest()
    return identity.from_bytes(milliseconds + chance)


def _times(schedule: Schedule, after: datetime) -> Iterator[datetime]:
    """In UTC. Where the clocks were put back, the library may repeat times that have passed."""
    place = zone(schedule.tz) or UTC
    passed = after.astimezone(UTC)
    try:
        for moment in CronSim(schedule.cron, after.astimezone(place)):
            moment_utc = moment.astimezone(UTC)
            if moment_utc > passed:
                passed = moment_utc
                yield moment_utc
    except OverflowError:
        # The end of the calendar.
        return


def _back(moment: datetime, span: timedelta) -> datetime:
    """So much earlier, or the beginning of the calendar."""
    try:
        return moment - span
    except OverflowError:
        return datetime.min.replace(tzinfo=UTC)


def _last(schedule: Schedule) -> datetime | None:
    return times.parse(schedule.until, "until") if schedule.until else None


def _unbounded(schedule: Schedule) -> Schedule:
    return Schedule(cron=schedule.cron, tz=schedule.tz)
