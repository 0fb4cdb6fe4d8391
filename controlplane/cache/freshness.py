"""The age of a cache, and how a cache moves on when etcd's stream has no changes to show.

A quorum of etcd is asked for the newest revision every second. Once the cache holds the answer, the cache is known to
have been fresh when the question was asked; the age counts from there. A member of etcd that lost its peers answers all
questions but this, so that a cache that follows such a member grows old and is noticed.

The cache's revision moves with changes below its own prefix, etcd's revision with all changes. When a caller waits for
a revision in between, the stream is asked for progress. An etcd whose progress is no proof (progress may run ahead of
changes that are still to be sent) is given a change to send instead: a key is written again.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from contextlib import suppress

import structlog

from controlplane.aio.clock import Clock
from controlplane.model.errors import ControlPlaneError
from controlplane.store import keys
from controlplane.store.kv import Store
from controlplane.store.transaction import Item, put
from controlplane.store.watch import WatchProgress

log = structlog.get_logger(__name__)

# A cache that was not known to be fresh for so long, and does not move either, must not serve.
STALE_SECONDS = 5.0
_STILL_SECONDS = 2.0
_LATE_SECONDS = 30.0
_LOOK_SECONDS = 1.0
_ANSWER_SECONDS = 2.0
# Longer waits are helped along; nearly all waits are over before.
_WAIT_SECONDS = 0.1
_NOTICE_SECONDS = 0.25
_RECOVERY_SECONDS = 0.05
_CATCH_UP_SECONDS = 1.0
_MOST_LOOKS = 16


class Freshness:
    """`holds` gives the revision of the cache, `waited_for` the lowest revision that a caller waits for, or 0.

    `advance` moves the cache when no key below the prefix changed.
    """

    def __init__(
        self,
        store: Store,
        clock: Clock,
        *,
        holds: Callable[[], int],
        waited_for: Callable[[], int],
        advance: Callable[[int], None],
    ) -> None:
        self._store = store
        self._clock = clock
        self._holds = holds
        self._waited_for = waited_for
        self._advance = advance
        self.lookout = WatchProgress(holds, self._passed)
        self._fresh_at: float | None = None
        self._looks: deque[tuple[int, float]] = deque()
        self._hinted = 0
        self._waited_before = 0
        self._helping: asyncio.TimerHandle | None = None
        self._wake = asyncio.Event()
        self._went_stale = asyncio.Event()

    @property
    def age_seconds(self) -> float:
        """The time since the cache was last known to hold all that etcd held; 0 before the cache was filled."""
        while self._looks and self._looks[0][0] <= max(self._holds(), self._hinted):
            self.confirm(self._looks.popleft()[1])
        return self._clock.monotonic() - self._fresh_at if self._fresh_at is not None else 0.0

    @property
    def is_stale(self) -> bool:
        return self._went_stale.is_set()

    async def stale(self) -> None:
        """Returns when the cache is stale."""
        await self._went_stale.wait()

    def confirm(self, asked_at: float) -> None:
        """The cache holds all that etcd held at this moment of the monotonic clock."""
        self._fresh_at = max(asked_at, self._fresh_at or asked_at)

    def help_waits(self) -> None:
        """A caller waits for a revision that the cache does not hold."""
        if self._helping is None:
            self._waited_before = self._waited_for()
            self._helping = asyncio.get_running_loop().call_later(_WAIT_SECONDS, self._help)

    def _help(self) -> None:
        """Repeated while callers wait; the many short waits are over before help comes."""
        self._helping = None
        waited = self._waited_for()
        if waited and waited == self._waited_before:
            self._wake.set()
        if waited:
            self.help_waits()

    async def run(self, stale: Callable[[], None]) -> None:
        """Until cancelled. Calls `stale` each time the cache becomes stale."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._look_forever())
            tasks.create_task(self._notice(stale))

    async def _look_forever(self) -> None:
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(_LOOK_SECONDS):
                    await self._wake.wait()
            self._wake.clear()
            try:
                await self._look()
            except ControlPlaneError as error:
                log.debug("no quorum of etcd tells its revision", error=str(error))
                self._wake.set()
            # However many callers wait: not more often than this.
            await self._clock.sleep(_WAIT_SECONDS)

    async def _look(self) -> None:
        asked_at = self._clock.monotonic()
        head = await self._store.revision(_ANSWER_SECONDS)
        if len(self._looks) < _MOST_LOOKS:
            self._looks.append((head, asked_at))
        self.lookout.expect(head)
        waited = self._waited_for()
        if not waited or waited > head:
            return
        await self._clock.sleep(_WAIT_SECONDS)
        if self.lookout.in_order is False and self._waited_for() == waited:
            # Nested, so that an etcd without space takes the write, too.
            await self._store.commit_group([Item(then=(put(keys.MARK, b""),))], timeout=_ANSWER_SECONDS)

    def _passed(self, revision: int, in_order: bool) -> None:
        if in_order:
            self._advance(revision)
        else:
            self._hinted = max(self._hinted, revision)

    async def _notice(self, stale: Callable[[], None]) -> None:
        held, moved_at = 0, self._clock.monotonic()
        while True:
            since = self._clock.monotonic()
            await self._clock.sleep(_RECOVERY_SECONDS if self.is_stale else _NOTICE_SECONDS)
            if self._clock.monotonic() - since > _NOTICE_SECONDS + _CATCH_UP_SECONDS:
                # This process itself stood still: let the loop read what has arrived meanwhile.
                await self._clock.sleep(_CATCH_UP_SECONDS)
            if held != self._holds():
                held, moved_at = self._holds(), self._clock.monotonic()
            self._judge(self._clock.monotonic() - moved_at, stale)

    def _judge(self, still_seconds: float, stale: Callable[[], None]) -> None:
        """A cache that moves is late, not frozen: taking its work away would not help an overloaded replica."""
        age = self.age_seconds
        frozen = age > STALE_SECONDS and still_seconds > _STILL_SECONDS
        if not frozen and age <= _LATE_SECONDS:
            if self._went_stale.is_set() and age <= STALE_SECONDS:
                log.info("the cache is fresh again", revision=self._holds())
                self._went_stale.clear()
        elif not self._went_stale.is_set():
            log.warning("the cache is stale", age_seconds=round(age, 1), revision=self._holds())
            self._went_stale.set()
            stale()
