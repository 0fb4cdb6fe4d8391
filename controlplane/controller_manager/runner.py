"""The runner: retries, logging and concurrency of all controllers, once.

A controller is asked about a key, re-reads everything, and either is content or says when to be asked again. Keys
come from changes, and every few minutes all of them come again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol

import structlog

from controlplane.aio.clock import Clock
from controlplane.aio.work_queue import WorkQueue
from controlplane.cache.ledgers import Ledgers, Touched
from controlplane.model.errors import Conflict, ControlPlaneError, Deposed, OutcomeUnknown, Unavailable

log = structlog.get_logger(__name__)

WORKERS = 128
RESYNC_SECONDS = 180.0
_BACK_OFF_SECONDS = (0.02, 0.1, 0.5, 2.0, 5.0)


@dataclass(frozen=True, slots=True)
class Again:
    """Ask once more after this time, even if nothing changes."""

    after_seconds: float


class Controller(Protocol):
    name: str

    def every_key(self) -> Iterable[str]:
        """Every key there is, for the start of a term and the regular round."""
        ...

    def concerned(self, touched: Touched) -> Iterable[str]:
        """The keys that a change concerns."""
        ...

    async def reconcile(self, key: str) -> Again | None: ...


class Runner:
    """Runs one controller for one term."""

    def __init__(self, controller: Controller, ledgers: Ledgers, clock: Clock) -> None:
        self._controller = controller
        self._ledgers = ledgers
        self._clock = clock
        self._queue: WorkQueue[str] = WorkQueue()
        self._failures: dict[str, int] = {}

    async def run(self) -> None:
        unsubscribe = self._ledgers.subscribe(self._hear)
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._resync())
                for _ in range(WORKERS):
                    tasks.create_task(self._work())
        finally:
            unsubscribe()
            self._queue.close()

    def _hear(self, touched: Touched) -> None:
        for key in self._controller.concerned(touched):
            self._queue.add(key)

    async def _resync(self) -> None:
        while True:
            for key in self._controller.every_key():
                self._queue.add(key)
            await self._clock.sleep(RESYNC_SECONDS)

    async def _work(self) -> None:
        while True:
            key = await self._queue.take()
            try:
                again = await self._controller.reconcile(key)
                self._failures.pop(key, None)
                if again is not None:
                    self._queue.add_later(key, again.after_seconds)
            except Deposed:
                raise
            except ControlPlaneError as error:
                self._failed(key, error)
            finally:
                self._queue.done(key)
            # Neither taking a key nor finding that it needs nothing lets anybody else run, and there may be many such.
            await asyncio.sleep(0)

    def _failed(self, key: str, error: ControlPlaneError) -> None:
        count = self._failures.get(key, 0)
        self._failures[key] = count + 1
        if not isinstance(error, Conflict | OutcomeUnknown | Unavailable):
            log.error("a controller cannot handle a key", controller=self._controller.name, key=key, error=str(error))
        self._queue.add_later(key, _BACK_OFF_SECONDS[min(count, len(_BACK_OFF_SECONDS) - 1)])
