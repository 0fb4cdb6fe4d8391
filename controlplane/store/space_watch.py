"""Watches etcd's space: every replica knows how full etcd is, without a question per request.

Looks now and then, more often when space is short, and at once after a write was refused for want of space. Also
notices when another etcd answers behind the endpoints: all state of this process would belong to another history, so
that the process must end.
"""

from __future__ import annotations

import asyncio

import structlog

from controlplane.model.errors import Broken, Refused, Unavailable
from controlplane.model.space import Level, Space, level_of
from controlplane.store import maintenance
from controlplane.store.channel import Channels

log = structlog.get_logger(__name__)

LOOK_SECONDS = 2.0
_SOON_SECONDS = 1.0


class SpaceWatch:
    def __init__(self, channels: Channels, quota: int) -> None:
        self._channels = channels
        self._quota = quota
        self._now: Space | None = None
        self._wake = asyncio.Event()

    @property
    def now(self) -> Space | None:
        """None before the first look."""
        return self._now

    @property
    def cluster_id(self) -> str:
        """The id of the etcd cluster; known after the first look of `run` or `look`."""
        return self._now.cluster_id if self._now is not None else ""

    def look_soon(self) -> None:
        """A write was refused for want of space."""
        self._wake.set()

    async def run(self) -> None:
        """Until cancelled; Broken when another etcd has taken the place of the first."""
        while True:
            try:
                await self.look()
            except (Refused, Unavailable) as error:
                log.debug("etcd does not report its status", error=str(error))
            pause = LOOK_SECONDS if self._now is not None and self._now.level is Level.OK else _SOON_SECONDS
            try:
                async with asyncio.timeout(pause):
                    await self._wake.wait()
            except TimeoutError:
                continue
            self._wake.clear()

    async def look(self) -> Space:
        condition = await maintenance.condition(self._channels)
        before = self._now
        if before is not None and before.cluster_id != condition.cluster_id:
            raise Broken(f"etcd was replaced: its cluster is {condition.cluster_id}, it was {before.cluster_id}")
        used = condition.in_use / self._quota
        level = level_of(used, alarm=condition.alarm, before=before.level if before is not None else Level.OK)
        self._now = Space(
            condition.cluster_id,
            condition.version,
            condition.size,
            condition.in_use,
            self._quota,
            condition.alarm,
            level,
        )
        self._tell(before, self._now)
        return self._now

    @staticmethod
    def _tell(before: Space | None, now: Space) -> None:
        fields = {"level": str(now.level), "in_use": now.in_use, "size": now.size, "quota": now.quota}
        was = before.level if before is not None else Level.OK
        if now.level is not was:
            (log.info if now.level is Level.OK else log.warning)(
                "etcd space level changed", **fields, why=now.sentence()
            )
        elif now.level is Level.OK and now.sentence() and not (before is not None and before.sentence()):
            log.warning("etcd's file is mostly empty", **fields, why=now.sentence())
