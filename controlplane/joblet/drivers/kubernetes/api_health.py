"""Whether the cluster's API can be reached, shown by a gate: open while the pods are in view, shut when the API stays
away.

A short absence changes nothing: creates and deletes wait, pods go on. A look every few seconds notices an API that fell
silent without closing a connection.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

import structlog

from controlplane.aio.clock import Clock
from controlplane.joblet.drivers.kubernetes.api import Answered, Api
from controlplane.joblet.drivers.kubernetes.collection_watch import CollectionWatch
from controlplane.joblet.gate import Gate
from controlplane.model.errors import OutcomeUnknown, Unavailable

LOOK_SECONDS = 3.0
log = structlog.get_logger(__name__)


class ApiHealth:
    """The first watch, of the pods, decides; `capacity_known` says whether the room of the cluster is known."""

    def __init__(
        self,
        api: Api,
        gate: Gate,
        watches: Sequence[CollectionWatch],
        *,
        capacity_known: Callable[[], bool],
        clock: Clock,
        away: float,
    ) -> None:
        self._api = api
        self._gate = gate
        self._watches = watches
        self._capacity_known = capacity_known
        self._clock = clock
        self._away = away
        self._news = asyncio.Event()

    def look(self) -> None:
        """A watch changed: look now instead of with the next turn."""
        self._news.set()

    async def run(self) -> None:
        well_at = self._clock.monotonic()
        while True:
            self._news.clear()
            asked_at = self._clock.monotonic()
            if await self._reachable() and self._watches[0].following and self._capacity_known():
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
            # A joblet without the right to ask for the health may still have all other rights: the watch decides.
            return error.status in (401, 403, 404)
        except (Unavailable, OutcomeUnknown):
            for watch in self._watches:
                watch.interrupt()
            return False
        return True
