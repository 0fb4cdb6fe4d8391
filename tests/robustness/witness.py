"""A witness of everything that happens in etcd: the whole history, with the moment at which each change was seen.

It watches etcd directly, through no proxy, from the first revision on, so that history is known also when a test
compacts it. It never writes. Moments are of the test's own monotonic clock.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass

import msgspec

from controlplane.aio.clock import SystemClock
from controlplane.model.errors import Broken
from controlplane.model.leadership import Cycle, Term
from controlplane.model.lifecycle import FINAL_ORDER
from controlplane.model.order import OrderStatus
from controlplane.model.target import TargetStatus
from controlplane.store import codec, keys
from controlplane.store.kv import Store
from controlplane.store.transaction import Value
from controlplane.store.watch import Change, watch
from tests import encryption
from tests.robustness.patience import PATIENCE_SECONDS

# What the witness reads itself; everything else is for the checks.
_KINDS: dict[str, type[msgspec.Struct]] = {
    "status/orders": OrderStatus,
    "status/targets": TargetStatus,
    "terms": Term,
    "cycles": Cycle,
}


@dataclass(frozen=True, slots=True)
class Seen:
    """A key of one of the watched trees was put: a term, a cycle."""

    moment: float
    revision: int
    epoch: int
    who: str = ""


class Witness:
    def __init__(self, endpoint: str) -> None:
        self.store = Store(encryption.etcd_options(endpoint), SystemClock())
        self.changes: list[Change] = []
        # When each of them was seen.
        self.moments: list[float] = []
        self.values: dict[str, Value] = {}
        self.phases: dict[str, str] = {}
        self.targets: dict[str, str] = {}
        self.terms: list[Seen] = []
        self.cycles: list[Seen] = []
        self.revision = 0
        self._waiting: list[tuple[Callable[[], object], asyncio.Future[None]]] = []
        self._lost: BaseException | None = None

    @asynccontextmanager
    async def watching(self) -> AsyncIterator[Witness]:
        task = asyncio.create_task(self._run())
        task.add_done_callback(self._blind)
        try:
            yield self
        finally:
            task.cancel()
            await asyncio.wait({task})
            await self.store.close()
            if not task.cancelled():
                task.result()

    async def _run(self) -> None:
        async for batch in watch(self.store.channels, keys.ROOT, 1):
            moment = asyncio.get_running_loop().time()
            for change in batch.changes:
                self._take(change, moment)
            self.revision = batch.revision
            for holds, future in self._waiting:
                if not future.done() and holds():
                    future.set_result(None)

    def _blind(self, task: asyncio.Task[None]) -> None:
        """Nobody waits for what a witness without a watch will never see."""
        self._lost = None if task.cancelled() else task.exception()
        for _, future in self._waiting:
            if self._lost is not None and not future.done():
                future.set_exception(self._lost)

    def _take(self, change: Change, moment: float) -> None:
        self.changes.append(change)
        self.moments.append(moment)
        if change.value is None:
            self.values.pop(change.key, None)
            return
        self.values[change.key] = change.value
        tree, parts = keys.parse(change.key) or ("", ())
        if tree in _KINDS:
            with suppress(Broken):
                self._note(parts[0], codec.read(change.value, _KINDS[tree]), change.revision, moment)

    def _note(self, name: str, found: msgspec.Struct, revision: int, moment: float) -> None:
        if isinstance(found, OrderStatus):
            self.phases[name] = found.phase
        elif isinstance(found, TargetStatus):
            self.targets[name] = found.phase
        elif isinstance(found, Term):
            self.terms.append(Seen(moment, revision, found.epoch, found.id))
        elif isinstance(found, Cycle):
            self.cycles.append(Seen(moment, revision, found.epoch))

    async def until(self, holds: Callable[[], object], what: str, *, seconds: float = PATIENCE_SECONDS) -> None:
        """Returns when it holds; asked again after each change."""
        if holds():
            return
        if self._lost is not None:
            raise self._lost
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        entry = (holds, future)
        self._waiting.append(entry)
        try:
            await asyncio.wait_for(future, seconds)
        except TimeoutError:
            raise AssertionError(f"not within {seconds} s: {what}") from None
        finally:
            self._waiting.remove(entry)

    async def caught_up(self) -> int:
        """Returns when everything that etcd has committed by now was seen."""
        head = await self.store.revision()
        await self.until(lambda: self.revision >= head, f"the witness sees revision {head}")
        return head

    @property
    def epoch(self) -> int:
        return max((term.epoch for term in self.terms), default=0)

    @property
    def leader(self) -> str:
        """The id in the newest term record."""
        return self.terms[-1].who if self.terms else ""

    def candidates(self) -> int:
        return sum(key.startswith(keys.CANDIDATES.prefix) for key in self.values)

    def cycle_after(self, moment: float, *, above_epoch: int) -> Seen | None:
        """The first cycle seen after the moment, of a higher epoch than that one."""
        return next((cycle for cycle in self.cycles if cycle.moment > moment and cycle.epoch > above_epoch), None)

    def finals(self, orders: set[str]) -> int:
        return sum(self.phases.get(order, "") in FINAL_ORDER for order in orders)
