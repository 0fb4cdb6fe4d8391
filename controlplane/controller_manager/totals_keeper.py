"""Totals: counts of processed, waiting and running work and of busy targets, and rates, in a record for the cluster.

No count goes over all orders: ends are counted as they arrive, and open work is a sum to which each changed order adds
its difference when the record is due. Only the first round of a term looks at every open order, some at a time. Written
at most once a second, and only with new content.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass, field

import msgspec
import structlog

from controlplane.aio.clock import Clock
from controlplane.cache.ended_orders import EndedOrderCounter
from controlplane.cache.ledgers import Ledgers, Touched
from controlplane.controller_manager.controller_writer import ControllerWriter
from controlplane.controller_manager.runner import Again
from controlplane.model import times
from controlplane.model.isolation import sentence
from controlplane.model.lifecycle import FINAL_ORDER
from controlplane.model.order import Counts
from controlplane.model.totals import Meter, TargetTotals, Totals, processed
from controlplane.store import codec, keys
from controlplane.store.transaction import Item, mod_is, put

log = structlog.get_logger(__name__)

KEY = "totals"
_SECONDS = 1.0
_AT_ONCE = 500
_FIELDS = Counts.__struct_fields__
_NOTHING = (0,) * len(_FIELDS)
_MOST_SEEN = 1_000


class Sums:
    """The counts of all open orders together; each order is remembered as it was counted."""

    def __init__(self) -> None:
        self._each: dict[str, tuple[int, ...]] = {}
        self._seen: dict[tuple[int, ...], tuple[int, ...]] = {}
        self._sum = list(_NOTHING)

    def set(self, order: str, counts: Counts | None) -> None:
        """None for an order that is over: the end is counted elsewhere."""
        before = self._each.pop(order, _NOTHING)
        after = _NOTHING if counts is None else msgspec.structs.astuple(counts)
        if counts is not None:
            # Many orders have the same counts.
            after = self._each[order] = self._seen.setdefault(after, after)
        if len(self._seen) > _MOST_SEEN:
            self._seen.clear()
        if before is not after:
            for at, (new, old) in enumerate(zip(after, before, strict=True)):
                if new != old:
                    self._sum[at] += new - old

    @property
    def counts(self) -> Counts:
        return Counts(**dict(zip(_FIELDS, self._sum, strict=True)))

    @property
    def orders(self) -> int:
        return len(self._each)


@dataclass(slots=True)
class TargetCensus:
    """The state of each target (present, Ready, busy), and the sums."""

    each: dict[str, tuple[bool, bool, bool]] = field(default_factory=dict)
    total: int = 0
    ready: int = 0
    busy: int = 0
    free: int = 0

    def set(self, target: str, there: bool, ready: bool, busy: bool) -> None:
        self._add(self.each.pop(target, (False, False, False)), -1)
        if there:
            self.each[target] = (there, ready, busy)
            self._add((there, ready, busy), 1)

    def _add(self, stands: tuple[bool, bool, bool], by: int) -> None:
        there, ready, busy = stands
        self.total += by * there
        self.ready += by * ready
        self.busy += by * busy
        self.free += by * (ready and not busy)

    def totals(self) -> TargetTotals:
        return TargetTotals(total=self.total, ready=self.ready, busy=self.busy, free=self.free)


class TotalsKeeper:
    """A controller with a single key. Changes only gather orders and targets until the record is due."""

    name = "totals"
    kind = "Controller"

    def __init__(self, ledgers: Ledgers, processed: EndedOrderCounter, writer: ControllerWriter, clock: Clock) -> None:
        self._ledgers = ledgers
        self._processed = processed
        self._writer = writer
        self._clock = clock
        self._sums = Sums()
        self._floor = TargetCensus()
        self._meter = Meter()
        self._orders: set[str] = set(ledgers.orders)
        self._targets: set[str] = set(ledgers.cache.snapshot.names(keys.TARGETS))
        self._written: float | None = None
        self._coming = False

    def every_key(self) -> Iterable[str]:
        return (KEY,)

    def keys_affected_by(self, touched: Touched) -> Iterable[str]:
        self._orders |= touched.orders
        self._targets |= touched.targets
        if self._coming or not (touched.orders or touched.targets):
            return ()
        self._coming = True
        return (KEY,)

    async def reconcile(self, key: str) -> Again | None:
        """While the controller has asked to be called again, changes only gather."""
        self._coming = True
        now = self._clock.monotonic()
        if self._written is not None and now < self._written + _SECONDS:
            return Again(after_seconds=self._written + _SECONDS - now)
        await self._look()
        totals = self._totals()
        entry = self._ledgers.cache.snapshot.single(keys.TOTALS)
        before = entry.readable() if entry is not None else None
        self._written = now
        if before is not None and same(before, totals):
            self._coming = False
            return None
        revision = entry.revision if entry is not None else 0
        unchanged = mod_is(keys.TOTALS, revision)
        await self._writer.write([Item(compares=(unchanged,), then=(put(keys.TOTALS, codec.encode(totals)),))])
        # Rates sink by themselves, and later changes wait for the next time.
        return Again(after_seconds=_SECONDS)

    async def _look(self) -> None:
        """Looks at changed targets and orders; lets other tasks run in between. Later changes wait."""
        orders, self._orders = self._orders, set()
        targets, self._targets = self._targets, set()
        for position, name in enumerate(targets):
            self._look_at_target(name)
            if position % _AT_ONCE == _AT_ONCE - 1:
                await asyncio.sleep(0)
        for position, identity in enumerate(orders):
            self._sums.set(identity, self._open(identity))
            if position % _AT_ONCE == _AT_ONCE - 1:
                await asyncio.sleep(0)
        # An order that ended during the look is counted as ended below, and must not count as open, too.
        for identity in self._orders:
            if self._open(identity) is None:
                self._sums.set(identity, None)

    def _open(self, identity: str) -> Counts | None:
        """The counts of an open order; None for an order that cannot be counted, which disturbs no other count."""
        ledger = self._ledgers.orders.get(identity)
        try:
            return ledger.counts() if ledger is not None and ledger.phase not in FINAL_ORDER else None
        except Exception as error:  # noqa: BLE001 - supervision: its own controller meets the same error
            log.warning("an order cannot be counted", order=identity, error=sentence(error))
            return None

    def _look_at_target(self, name: str) -> None:
        snapshot = self._ledgers.cache.snapshot
        status = snapshot.target_status(name)
        self._floor.set(
            name,
            snapshot.has(keys.TARGETS, name),
            status is not None and status.phase == "Ready",
            bool(self._ledgers.target(name).fulfilments),
        )

    def _totals(self) -> Totals:
        """All counts are of the same revision of the cache."""
        ends, open_ = self._processed.ends, self._sums.counts
        tasks = ends.tasks.plus(processed(open_))
        return Totals(
            epoch=self._writer.epoch,
            revision=self._ledgers.cache.revision,
            at=times.show(self._clock.wall()),
            orders=ends.orders,
            tasks=tasks,
            closed=ends.tasks,
            open_orders=self._sums.orders,
            queued=open_.pending,
            placed=open_.placed,
            running=open_.running,
            held=open_.held,
            targets=self._floor.totals(),
            rates=self._meter.sample(self._clock.monotonic(), ends.orders.total, tasks.total),
        )


def same(before: Totals, after: Totals) -> bool:
    """Whether both say the same, whoever wrote them and when."""
    return msgspec.structs.replace(before, epoch=after.epoch, revision=after.revision, at=after.at) == after
