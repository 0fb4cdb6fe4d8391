"""Moments: when something may become placeable by time alone, so that the cycle need not ask again and again.

When a target next opens or closes is worked out once and kept until that moment has passed. Where many targets have to
be worked out at once, as in a leader's first cycle, that is done beside the loop, and the cycle hears of it afterwards.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import datetime, timedelta

from controlplane.aio.thread_team import ThreadTeam
from controlplane.engine.backlog import Backlog
from controlplane.engine.world import World
from controlplane.model import times, windows
from controlplane.model.isolation import Ward
from controlplane.model.target import Window

# More than so many changes of windows are not worked out on the loop: one takes up to some milliseconds.
_FEW = 4
# What never opens or closes is looked at again after this, since the rules of time zones change.
_NEVER = timedelta(days=7)
_WINDOWS = ThreadTeam("windows", 1)

Windows = tuple[Window, ...]


class Moments:
    def __init__(self, ward: Ward, wake: Callable[[], None]) -> None:
        """`wake` is called when windows were worked out that the last answer did not know yet."""
        self._ward = ward
        self._wake = wake
        # By windows, since many targets have the same: when it was asked, when they change next, until when that holds.
        self._changes: dict[Windows, tuple[datetime, datetime | None, datetime]] = {}
        self._working: asyncio.Task[None] | None = None

    def close(self) -> None:
        if self._working is not None:
            self._working.cancel()

    def next(self, world: World, backlog: Backlog) -> str | None:
        """The first moment to come; what is still being worked out beside the loop is left out."""
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
    """When it opens or closes next; what that raises is returned, since it concerns only targets with these windows."""
    try:
        return windows.next_change(key, now)
    except Exception as error:  # noqa: BLE001 - supervision
        return error
