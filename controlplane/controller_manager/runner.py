"""The runner: retries, logging and concurrency of all controllers, once.

A controller is asked about a key, re-reads everything, and either is content or says when to be asked again. Keys
come from changes, and every few minutes all of them come again. Whatever a controller raises about a key concerns that
key only: it waits in the quarantine and is tried again with back-off. Only Deposed ends the term.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Protocol

from controlplane.aio.clock import Clock
from controlplane.aio.work_queue import WorkQueue
from controlplane.cache.ledgers import Ledgers, Touched
from controlplane.model.errors import Conflict, OutcomeUnknown, Unavailable
from controlplane.quarantine import Quarantine, ends_term

# So many keys of a controller are handled at a time.
WORKERS = 128
RESYNC_SECONDS = 180.0
# Of a key whose writes were refused or got no answer, which is no fault of the key.
_BACK_OFF_SECONDS = (0.02, 0.1, 0.5, 2.0, 5.0)
_LONGEST_SECONDS = 24 * 3600.0
# What the keys of each controller are; those of others are the controller's own.
_KINDS = {
    "orders": "Order",
    "clean-up": "Order",
    "recurring": "Order",
    "targets": "Target",
    "scaling": "ScalePolicy",
    "made": "Target",
}


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

    def __init__(
        self,
        controller: Controller,
        ledgers: Ledgers,
        clock: Clock,
        quarantine: Quarantine | None = None,
        *,
        workers: int = WORKERS,
    ) -> None:
        self._controller = controller
        self._ledgers = ledgers
        self._clock = clock
        self._quarantine = quarantine or Quarantine(clock)
        self._asking = f"{controller.name}: what a change concerns"
        self._kind = _KINDS.get(controller.name, "Controller")
        self._queue: WorkQueue[str] = WorkQueue()
        self._failures: dict[str, int] = {}
        self._workers = workers

    async def run(self) -> None:
        unsubscribe = self._ledgers.subscribe(self._hear)
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._resync())
                for _ in range(self._workers):
                    tasks.create_task(self._work())
        finally:
            unsubscribe()
            self._queue.close()

    def add(self, key: str) -> None:
        """Asks the controller about the key, although nothing changed that the cache knows of."""
        self._queue.add(key)

    def _hear(self, touched: Touched) -> None:
        try:
            keys = list(self._controller.concerned(touched))
        except Exception:  # noqa: BLE001 - some of it cannot be asked about: the rest is asked about one by one
            keys = list(self._concerned_one_by_one(touched))
        else:
            if self._quarantine.total:
                for kind, name in _names(touched):
                    self._quarantine.passed(self._asking, kind, name)
        for key in keys:
            self._queue.add(key)

    def _concerned_one_by_one(self, touched: Touched) -> Iterator[str]:
        for part in _apart(touched):
            try:
                yield from list(self._controller.concerned(part))
            except Exception as error:  # noqa: BLE001 - supervision: what cannot be asked about is isolated
                for kind, key in _names(part):
                    self._quarantine.failed(self._asking, kind, key, error)

    async def _resync(self) -> None:
        name = self._controller.name
        while True:
            try:
                for key in self._controller.every_key():
                    self._queue.add(key)
            except Exception as error:  # noqa: BLE001 - supervision: the keys that changes concern go on
                await self._clock.sleep(self._quarantine.failed(name, "Controller", "every key", error))
                continue
            self._quarantine.passed(name, "Controller", "every key")
            await self._clock.sleep(RESYNC_SECONDS)

    async def _work(self) -> None:
        while True:
            key = await self._queue.take()
            try:
                await self._handle(key)
            finally:
                self._queue.done(key)
            # Neither taking a key nor finding that it needs nothing lets anybody else run, and there may be many such.
            await asyncio.sleep(0)

    async def _handle(self, key: str) -> None:
        name = self._controller.name
        too_soon = self._quarantine.left_seconds(name, self._kind, key)
        if too_soon:
            self._queue.add_later(key, too_soon)
            return
        try:
            again = await self._controller.reconcile(key)
        except (Conflict, OutcomeUnknown, Unavailable):
            count = self._failures.get(key, 0)
            self._failures[key] = count + 1
            self._queue.add_later(key, _BACK_OFF_SECONDS[min(count, len(_BACK_OFF_SECONDS) - 1)])
        except Exception as error:
            if ends_term(error):
                raise
            self._queue.add_later(key, self._quarantine.failed(name, self._kind, key, error))
        else:
            self._failures.pop(key, None)
            self._quarantine.passed(name, self._kind, key)
            if again is not None:
                # Also of a time at the end of the calendar, or of no time at all.
                bounded = min(again.after_seconds, _LONGEST_SECONDS) if again.after_seconds > 0 else 0.0
                self._queue.add_later(key, bounded)


def _apart(touched: Touched) -> Iterator[Touched]:
    """The same, one by one, for who cannot take all of it at once."""
    yield from (Touched(orders={name}) for name in touched.orders)
    yield from (Touched(targets={name}) for name in touched.targets)
    yield from (Touched(config={name}) for name in touched.config)


def _names(touched: Touched) -> Iterator[tuple[str, str]]:
    """What was concerned, as kind and name."""
    for kind, names in (("Order", touched.orders), ("Target", touched.targets), ("Tree", touched.config)):
        yield from ((kind, name) for name in names)
