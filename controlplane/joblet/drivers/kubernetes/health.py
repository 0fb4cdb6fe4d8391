"""Whether the cluster's API is there, told by a gate: open while its pods are in view, shut when it stays away.

A short absence changes nothing: creates and deletes wait, what runs goes on. One look every few seconds finds an API
that fell silent without closing a connection.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

import structlog

from controlplane.aio.clock import Clock
from controlplane.joblet.drivers.kubernetes.api import Answered, Api
from controlplane.joblet.drivers.kubernetes.feed import Feed
from controlplane.joblet.gate import Gate
from controlplane.model.errors import OutcomeUnknown, Unavailable

LOOK_SECONDS = 3.0
log = structlog.get_logger()


class Health:
    """The first of the feeds is the one that counts; `known` says whether the capacity is known."""

    def __init__(
        self,
        api: Api,
        gate: Gate,
        feeds: Sequence[Feed],
        *,
        known: Callable[[], bool],
        clock: Clock,
        away: float,
    ) -> None:
        self._api = api
        self._gate = gate
        self._feeds = feeds
        self._known = known
        self._clock = clock
        self._away = away
        self._news = asyncio.Event()

    def look(self) -> None:
        """Something changed: do not wait for the next turn."""
        self._news.set()

    async def run(self) -> None:
        well_at = self._clock.monotonic()
        while True:
            self._news.clear()
            asked_at = self._clock.monotonic()
            if await self._reachable() and self._feeds[0].following and self._known():
                well_at = asked_at
                if not self._gate.is_open:
                    log.info("the cluster is in view")
                self._gate.open()
            elif self._clock.monotonic() - well_at > self._away and self._gate.is_open:
                log.warning("the cluster's API stays away: the target falls silent", seconds=self._away)
                self._gate.shut()
            try:
                async with asyncio.timeout(LOOK_SECONDS):
                    await self._news.wait()
            except TimeoutError:
                continue

    async def _reachable(self) -> bool:
        try:
            await self._api.ready()
        except Answered as error:
            # Who may not ask for its health may still have what is needed: the watch tells.
            return error.status in (401, 403, 404)
        except (Unavailable, OutcomeUnknown):
            for feed in self._feeds:
                feed.interrupt()
            return False
        return True
