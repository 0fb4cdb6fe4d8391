"""The runner: retries, logging and concurrency of all controllers, in a single place.

A controller is asked about a key, re-reads the cache, and is content or says when to be asked again. Keys come from
changes, and every few minutes all keys come again. An error about a key concerns that key only: the key waits in the
quarantine and is tried again with back-off. Only Deposed ends the term.
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

# The number of keys of a controller that are handled at a time.
WORKERS = 128
RESYNC_SECONDS = 180.0
# For a key whose writes were refused or unanswered, which is no fault of the key.
_BACK_OFF_SECONDS = (0.02, 0.1, 0.5, 2.0, 5.0)
_LONGEST_SECONDS = 24 * 3600.0


@dataclass(frozen=True, slots=True)
class Again:
    """Ask once more after this time, even without changes."""

    after_seconds: float


class Controller(Protocol):
    """`kind` is the kind of objects that the keys name; "Controller" when the keys name no object."""

    name: str
    kind: str

    def every_key(self) -> Iterable[str]:
        """Every key, for the start of a term and the regular round."""
        ...

    def keys_affected_by(self, touched: Touched) -> Iterable[str]:
        """The keys that have to be reconciled after a change."""
        ...

    async def reconcile(self, key: str) -> Again | None: ...


class Runner:
    """Runs a controller for a term. Two reconciles of the same key never overlap."""

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
        """Asks the controller about the key, for a reason outside of the cache."""
        self._queue.add(key)

    def _hear(self, touched: Touched) -> None:
        try:
            keys = list(self._controller.keys_affected_by(touched))
        except Exception:  # noqa: BLE001 - some of it cannot be asked about: the rest is asked about one by one
            keys = list(self._affected_one_by_one(touched))
        else:
            if self._quarantine.total:
                for kind, name in _names(touched):
                    self._quarantine.passed(self._asking, kind, name)
        for key in keys:
            self._queue.add(key)

    def _affected_one_by_one(self, touched: Touched) -> Iterator[str]:
        for part in _apart(touched):
            try:
                yield from list(self._controller.keys_affected_by(part))
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
            # Taking a key that needs no action never yields to the event loop, and there may be many such keys.
            await asyncio.sleep(0)

    async def _handle(self, key: str) -> None:
        name, kind = self._controller.name, self._controller.kind
        too_soon = self._quarantine.left_seconds(name, kind, key)
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
            self._queue.add_later(key, self._quarantine.failed(name, kind, key, error))
        else:
            self._failures.pop(key, None)
            self._quarantine.passed(name, kind, key)
            if again is not None:
                # Bounded also for times at the end of the calendar, and for NaN.
                bounded = min(again.after_seconds, _LONGEST_SECONDS) if again.after_seconds > 0 else 0.0
                self._queue.add_later(key, bounded)


def _apart(touched: Touched) -> Iterator[Touched]:
    """The same objects one by one, for a controller that fails on all at once."""
    yield from (Touched(orders={name}) for name in touched.orders)
    yield from (Touched(targets={name}) for name in touched.targets)
    yield from (Touched(config={name}) for name in touched.config)


def _names(touched: Touched) -> Iterator[tuple[str, str]]:
    """The objects as kind and name."""
    for kind, names in (("Order", touched.orders), ("Target", touched.targets), ("Tree", touched.config)):
        yield from ((kind, name) for name in names)
