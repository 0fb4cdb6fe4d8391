"""Orders: ends attempts that were reported as ended, asks for stops, folds the status, finishes.

Status is written when the phase changes, and for counts alone at most once a second.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from controlplane.aio.clock import Clock
from controlplane.cache.ledger import ORPHAN, JobLedger, OrderLedger
from controlplane.cache.ledgers import Ledgers, Touched
from controlplane.controller_manager import release
from controlplane.controller_manager.runner import Again
from controlplane.model import failure, times
from controlplane.model.errors import Conflict
from controlplane.model.fulfilment import Ended, ObservedTask
from controlplane.model.lifecycle import FINAL_ORDER
from controlplane.model.order import OrderStatus
from controlplane.model.progress import phase_of
from controlplane.store import codec, keys
from controlplane.store.fenced import FencedWriter
from controlplane.store.transaction import Item, absent, mod_is, put

_COUNTS_SECONDS = 1.0
_ORPHANS_AN_ITEM = 500


class Orders:
    name = "orders"

    def __init__(self, ledgers: Ledgers, writer: FencedWriter, clock: Clock) -> None:
        self._ledgers = ledgers
        self._writer = writer
        self._clock = clock
        self._written: dict[str, float] = {}

    def every_key(self) -> Iterable[str]:
        return list(self._ledgers.orders)

    def concerned(self, touched: Touched) -> Iterable[str]:
        ledgers = self._ledgers.orders
        return [order for order in touched.orders if (ledger := ledgers.get(order)) is None or not untouched(ledger)]

    async def reconcile(self, key: str) -> Again | None:
        ledger = self._ledgers.orders.get(key)
        if ledger is None:
            self._written.pop(key, None)
            return None
        if ledger.over or ledger.order.cancel or ledger.orphans():
            await self._write_all(plan(ledger, epoch=self._writer.epoch, now=self._now()))
        ledger = self._ledgers.orders.get(key)
        return await self._fold(ledger) if ledger is not None else None

    async def _fold(self, ledger: OrderLedger) -> Again | None:
        status = fold(ledger, epoch=self._writer.epoch, now=self._now(), before=self._stored(ledger.order.id))
        if status is None:
            return None
        identity = ledger.order.id
        if status.phase == ledger.phase:
            left = self._written.get(identity, 0.0) + _COUNTS_SECONDS - self._clock.monotonic()
            if left > 0:
                return Again(after_seconds=left)
        self._written[identity] = self._clock.monotonic()
        key = keys.order_status(identity)
        item = Item(compares=(mod_is(key, ledger.status_revision),), then=(put(key, codec.encode(status)),))
        await self._write_all([item])
        return None

    async def _write_all(self, items: list[Item]) -> None:
        """All of them are independent; Conflict when one was refused, after the picture has caught up with the rest."""
        if not items:
            return
        outcomes = await asyncio.gather(*(self._writer.write(item) for item in items))
        await self._ledgers.cache.reached(max(outcome.revision for outcome in outcomes))
        if not all(outcome.succeeded for outcome in outcomes):
            raise Conflict("the order moved on meanwhile")

    def _stored(self, identity: str) -> OrderStatus | None:
        entry = self._ledgers.cache.snapshot.get("status/orders", identity)
        return entry.sound(OrderStatus) if entry is not None else None

    def _now(self) -> str:
        return times.show(self._clock.wall())


def untouched(ledger: OrderLedger) -> bool:
    """Nothing happened to it since it was submitted, and nobody wishes anything."""
    order = ledger.order
    return not (ledger.live or ledger.ended_any or ledger.status_revision or order.cancel or order.paused)


def plan(ledger: OrderLedger, *, epoch: int, now: str) -> list[Item]:
    """What has to be written for the order's fulfilments, each item by itself."""
    cancel = ledger.order.cancel
    items = [
        release.ended_by_report(ledger.live[identity], cancelled=cancel, epoch=epoch, now=now)
        for identity in ledger.over
    ]
    if cancel:
        items.extend(
            release.stop(live.fulfilment, "Cancelled", epoch=epoch, revision=live.revision)
            for identity, live in ledger.live.items()
            if live.fulfilment.want != "stop" and identity not in ledger.over
        )
    if ledger.orphans():
        items.extend(_orphans(ledger, epoch=epoch, now=now))
    return items


def _orphans(ledger: OrderLedger, *, epoch: int, now: str) -> Iterable[Item]:
    """Tasks whose fulfilment vanished without an end on record (somebody deleted it by hand) end as Lost."""
    for name, job in ledger.jobs.items():
        if not job.counts[ORPHAN]:
            continue
        for index in _places(job)[:_ORPHANS_AN_ITEM]:
            attempt = job.attempt(index)
            seen = ObservedTask(job=name, index=index, attempt=attempt, phase="Failed", reason="Lost")
            # The fulfilment's identity went with its key: the attempt's own name stands in for it.
            identity = f"lost-{name}-{index}-{attempt}"
            ended = Ended(
                id=identity,
                order=ledger.order.id,
                target="",
                epoch=epoch,
                cycle=0,
                tasks=(failure.end(seen, cancelled=ledger.order.cancel, finished=now),),
                ended=now,
            )
            key = keys.ended(ledger.order.id, identity)
            yield Item(compares=(absent(key),), then=(put(key, codec.encode(ended)),))


def _places(job: JobLedger) -> list[int]:
    return [index for index, state in enumerate(job.state) if state == ORPHAN]


def fold(ledger: OrderLedger, *, epoch: int, now: str, before: OrderStatus | None) -> OrderStatus | None:
    """The order's status now; None when what is stored says it already."""
    counts = ledger.counts()
    began = bool(ledger.live) or ledger.ended_any
    phase = phase_of(counts, cancel=ledger.order.cancel, paused=ledger.order.paused, began=began)
    percent = ledger.percent()
    if before is None and phase == "Pending":
        return None
    if before is not None and (before.phase, before.counts, before.percent) == (phase, counts, percent):
        return None
    return OrderStatus(
        order=ledger.order.id,
        epoch=epoch,
        phase=phase,
        counts=counts,
        percent=percent,
        started=(before.started if before is not None else None) or (now if began else None),
        finished=now if phase in FINAL_ORDER else None,
    )
