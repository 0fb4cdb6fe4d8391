"""Orders: ends attempts that were reported as ended, asks for stops, folds the status, finishes.

Status is written when the phase changes, and for counts alone at most once a second. The end of the last attempts and
the final status are one write.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from msgspec.structs import replace

from controlplane.aio.clock import Clock
from controlplane.cache.ledger import ORPHAN, JobLedger, OrderLedger
from controlplane.cache.ledgers import Ledgers, Touched
from controlplane.controller_manager import release
from controlplane.controller_manager.runner import Again
from controlplane.model import failure, times
from controlplane.model.errors import Conflict
from controlplane.model.fulfilment import Ended, ObservedTask
from controlplane.model.lifecycle import FINAL_ORDER, OrderPhase
from controlplane.model.order import Counts, OrderStatus
from controlplane.model.progress import phase_of
from controlplane.store import codec, keys
from controlplane.store.fenced import FencedWriter
from controlplane.store.transaction import Item, absent, mod_is, put

_COUNTS_SECONDS = 1.0
_ORPHANS_AN_ITEM = 500
# An item with more operations would keep others out of its group.
_MOST_OPERATIONS = 25


class Orders:
    name = "orders"

    def __init__(self, ledgers: Ledgers, writer: FencedWriter, clock: Clock) -> None:
        self._ledgers = ledgers
        self._writer = writer
        self._clock = clock
        self._written: dict[str, float] = {}
        # Those that come back by themselves, when their counts may be written.
        self._counting: set[str] = set()

    def every_key(self) -> Iterable[str]:
        return list(self._ledgers.orders)

    def concerned(self, touched: Touched) -> Iterable[str]:
        """Those that need something now: most changes move counts only, and those are folded when their time comes."""
        found = []
        for key in touched.orders:
            ledger = self._ledgers.orders.get(key)
            if ledger is None:
                self._forget(key)
            elif not untouched(ledger) and (key not in self._counting or urgent(ledger)):
                found.append(key)
        return found

    async def reconcile(self, key: str) -> Again | None:
        self._counting.discard(key)
        ledger = self._ledgers.orders.get(key)
        if ledger is not None and (ledger.over or ledger.order.cancel or ledger.orphans()):
            await self._write_all(plan(ledger, epoch=self._writer.epoch, now=self._now(), before=self._stored(key)))
            ledger = self._ledgers.orders.get(key)
        if ledger is None:
            self._forget(key)
            return None
        again = await self._fold(ledger)
        if again is not None:
            self._counting.add(key)
        return again

    def _forget(self, key: str) -> None:
        self._written.pop(key, None)
        self._counting.discard(key)

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
        await self._write_all([_telling(ledger, status)])
        return None if status.phase in FINAL_ORDER else Again(after_seconds=_COUNTS_SECONDS)

    async def _write_all(self, items: list[Item]) -> None:
        """All of them are independent; Conflict when one was refused, after the picture has caught up with the rest."""
        if not items:
            return
        outcomes = await self._writer.write_all(items)
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


def urgent(ledger: OrderLedger) -> bool:
    """Whether more than its counts may have to be written. What has something live cannot be at its end."""
    order = ledger.order
    if ledger.over or order.cancel or not ledger.live or ledger.orphans():
        return True
    return ledger.phase != (OrderPhase.PAUSED if order.paused else OrderPhase.RUNNING)


def plan(ledger: OrderLedger, *, epoch: int, now: str, before: OrderStatus | None = None) -> list[Item]:
    """What has to be written for the order's fulfilments, each item by itself; with the last end, the order's own."""
    cancel = ledger.order.cancel
    releases = [
        release.ended_by_report(ledger.live[identity], cancelled=cancel, epoch=epoch, now=now)
        for identity in ledger.over
    ]
    final = finish(ledger, [ended for ended, _ in releases], epoch=epoch, now=now, before=before)
    if final is not None:
        whole = _together([*(item for _, item in releases), _telling(ledger, final)])
        if whole.weight() <= _MOST_OPERATIONS:
            return [whole]
    items = [item for _, item in releases]
    if cancel:
        items.extend(
            release.stop(live.fulfilment, "Cancelled", epoch=epoch, revision=live.revision)
            for identity, live in ledger.live.items()
            if live.fulfilment.want != "stop" and identity not in ledger.over
        )
    if ledger.orphans():
        items.extend(_orphans(ledger, epoch=epoch, now=now))
    return items


def _together(items: Sequence[Item]) -> Item:
    return Item(
        compares=tuple(compare for item in items for compare in item.compares),
        then=tuple(operation for item in items for operation in item.then),
    )


def _telling(ledger: OrderLedger, status: OrderStatus) -> Item:
    key = keys.order_status(ledger.order.id)
    if ledger.replaced_by:
        status = replace(status, replaced_by=ledger.replaced_by)
    return Item(compares=(mod_is(key, ledger.status_revision),), then=(put(key, codec.encode(status)),))


def finish(
    ledger: OrderLedger, ends: Sequence[Ended], *, epoch: int, now: str, before: OrderStatus | None
) -> OrderStatus | None:
    """The order's final status when these ends are all that it still waits for; None when it is not over with them."""
    if not ends or len(ends) != len(ledger.live):
        return None
    counts = ledger.counts()
    decided = Counter(task.decision for ended in ends for task in ended.tasks)
    over = decided["done"] + decided["fail"] + decided["cancel"]
    if counts.pending or counts.held or over != decided.total() or over != counts.placed + counts.running:
        return None
    final = Counts(
        succeeded=counts.succeeded + decided["done"],
        failed=counts.failed + decided["fail"],
        cancelled=counts.cancelled + decided["cancel"],
    )
    return OrderStatus(
        order=ledger.order.id,
        epoch=epoch,
        phase=phase_of(final, cancel=ledger.order.cancel, paused=ledger.order.paused, began=True),
        counts=final,
        percent=ledger.percent(ending=over),
        started=(before.started if before is not None else None) or now,
        finished=now,
    )


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
