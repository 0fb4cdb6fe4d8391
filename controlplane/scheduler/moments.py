"""Moments: when a task may become placeable by time alone, so that the cycle need not poll.

The moment at which a target next opens or closes is computed once and kept until the moment has passed. Where many
targets have to be computed at once, as in a leader's first cycle, the computation runs beside the loop, and the cycle
is woken afterwards.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import datetime, timedelta

from controlplane.aio.thread_team import ThreadTeam
from controlplane.engine.world import World
from controlplane.model import times, windows
from controlplane.model.isolation import Ward
from controlplane.model.target import Window
from controlplane.survey.backlog import Backlog

# More than so many changes of windows are not computed on the loop: each takes up to some milliseconds.
_FEW = 4
# Windows which never open or close are computed again after this time, since the rules of time zones change.
_NEVER = timedelta(days=7)
_WINDOWS = ThreadTeam("windows", 1)

Windows = tuple[Window, ...]


class Moments:
    def __init__(self, ward: Ward, wake: Callable[[], None]) -> None:
        """`wake` is called when windows were computed which the last answer of `next` did not include yet."""
        self._ward = ward
        self._wake = wake
        # Keyed by windows, since many targets share the same windows: when the change was computed, when the windows
        # change next, and until when the answer holds.
        self._changes: dict[Windows, tuple[datetime, datetime | None, datetime]] = {}
        self._working: asyncio.Task[None] | None = None

    def close(self) -> None:
        if self._working is not None:
            self._working.cancel()

    def next(self, world: World, backlog: Backlog) -> str | None:
        """The first moment to come; windows still being computed beside the loop are left out."""
        moments = [moment for moment in (backlog.next_time(),) if moment is not None]
        wanted = {row.windows: row.name for row in world.targets if row.windows}
        if wanted:
            self._changes = {key: kept for key, kept in self._changes.items() if key in wanted}
            self._work_out({key: name for key, name in wanted.items() if not self._holds(key, world.now)}, world.now)
            moments += [times.show(change) for _, change, _ in self._changes.values() if change is not None]
        if world.book.reads_now:
            moments.append(times.show(world.now.replace(second=0, microsecond=0) + timedelta(minutes=1)))
        return min(moments, default=None)

    def _holds(self, key: Windows, now: datetime) -> bool:
        kept = self._changes.get(key)
        return kept is not None and kept[0] <= now < kept[2]

    def _work_out(self, missing: dict[Windows, str], now: datetime) -> None:
        for key in missing:
            self._changes.pop(key, None)
        if len(missing) <= _FEW:
            for key, name in missing.items():
                self._keep(key, name, now, next_change(key, now))
        elif self._working is None or self._working.done():
            self._working = asyncio.get_running_loop().create_task(self._work_out_beside(missing, now))

    async def _work_out_beside(self, missing: dict[Windows, str], now: datetime) -> None:
        for key, name in missing.items():
            self._keep(key, name, now, await _WINDOWS.run(next_change, key, now))
        self._wake()

    def _keep(self, key: Windows, name: str, now: datetime, change: datetime | Exception | None) -> None:
        if isinstance(change, Exception):
            self._ward.failed("Target", name, change)
            change = None
        self._changes[key] = (now, change, change if change is not None else now + _NEVER)


def next_change(key: Windows, now: datetime) -> datetime | Exception | None:
    """When the windows open or close next; an error is returned, not raised, since only targets with these windows are
    concerned."""
    try:
        return windows.next_change(key, now)
    except Exception as error:  # noqa: BLE001 - supervision
        return error
