"""Orders: ends attempts that were reported as ended, asks for stops, watches deadlines, folds the status, finishes.

Status is written when the phase changes or a user waits for an answer, and for counts alone at most once a second. The
end of the last attempts and the final status are one write, unless that were too large. That waiting tasks are too late
for the deadline is one write too, however many they are: the status names their job.

A final status compares the order that it was decided on, and is not decided while placements of the order are under way
(`cache/sending`), so that nothing is placed for an order that is over.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import islice

import msgspec

from controlplane.aio.clock import Clock
from controlplane.cache.job_ledger import ORPHAN
from controlplane.cache.ledger import OrderLedger
from controlplane.cache.ledgers import Ledgers, Touched
from controlplane.controller_manager import deadlines, judging, release
from controlplane.controller_manager.deadlines import NEVER, Late
from controlplane.controller_manager.folding import finish, fold, status_of
from controlplane.controller_manager.runner import Again
from controlplane.controller_manager.stopping import stops
from controlplane.model import times
from controlplane.model.errors import Conflict
from controlplane.model.fulfilment import Ended, ObservedTask
from controlplane.model.lifecycle import FINAL_ORDER, OrderPhase
from controlplane.model.order import OrderStatus
from controlplane.store import codec, keys
from controlplane.store.fenced import FencedWriter
from controlplane.store.transaction import Item, absent, mod_is, put

_COUNTS_SECONDS = 1.0
_ORPHANS_AN_ITEM = 500
STOPS_AT_ONCE = 1000
# An item with more operations, or larger, would keep others out of its group.
_MOST_OPERATIONS = 25
_MOST_BYTES = 256 << 10
# Moments are written in milliseconds: who looks again must not come before the one that was named.
_ROUNDING_SECONDS = 0.002


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
        late = NEVER
        if ledger is not None and ledger.order.deadline is not None:
            late = await self._expire(ledger)
        if ledger is not None and (late.passed or acts(ledger)):
            epoch, now = self._writer.epoch, self._now()
            ends = not self._ledgers.sending.unsettled(key)
            before = self._stored(key)
            await self._write_all(plan(ledger, epoch=epoch, now=now, before=before, late=late.passed, ends=ends))
            ledger = self._ledgers.orders.get(key)
            if ledger is not None and any(stops(ledger, late=late.passed, epoch=epoch)):
                return Again(after_seconds=0.0)
        if ledger is None:
            self._forget(key)
            return None
        again = await self._fold(ledger)
        if again is not None:
            self._counting.add(key)
        timed = late.following is not None and key in self._ledgers.orders
        return self._by(late.following or "", again) if timed else again

    async def _expire(self, ledger: OrderLedger) -> Late:
        """Fails what waits and is too late; a change of the order that happens meanwhile goes first."""
        late = deadlines.look(ledger, self._now())
        if late.jobs and not self._ledgers.sending.unsettled(ledger.order.id):
            identity = ledger.order.id
            before = self._stored(identity)
            status = status_of(ledger, epoch=self._writer.epoch, now=self._now(), before=before)
            status = msgspec.structs.replace(status, expired=tuple(sorted({*ledger.expired, *late.jobs})))
            unchanged = mod_is(keys.order(identity), ledger.revision)
            await self._write_all([_together([Item(compares=(unchanged,)), _telling(ledger, status)])])
        return late

    def _by(self, moment: str, again: Again | None) -> Again:
        """At the latest at that moment."""
        left = (times.parse(moment, "moment") - self._clock.wall()).total_seconds() + _ROUNDING_SECONDS
        return Again(after_seconds=max(0.0, left if again is None else min(left, again.after_seconds)))

    def _forget(self, key: str) -> None:
        self._written.pop(key, None)
        self._counting.discard(key)

    async def _fold(self, ledger: OrderLedger) -> Again | None:
        status = fold(ledger, epoch=self._writer.epoch, now=self._now(), before=self._stored(ledger.order.id))
        if status is None:
            return None
        identity = ledger.order.id
        if status.phase in FINAL_ORDER and self._ledgers.sending.unsettled(identity):
            return None
        if status.phase == ledger.phase and not unanswered(ledger):
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
    """Nothing happened to it since it was submitted, nobody wishes anything, and no time is set."""
    order = ledger.order
    if ledger.live or ledger.ended_any or ledger.status_revision or ledger.changed:
        return False
    return not (order.cancel or order.paused or order.deadline is not None)


def unanswered(ledger: OrderLedger) -> bool:
    """Its user changed it, and nobody said yet that this was seen."""
    return ledger.changed and ledger.answered < ledger.revision


def acts(ledger: OrderLedger) -> bool:
    """Whether something has to be ended or stopped, perhaps."""
    order = ledger.order
    return bool(ledger.over or ledger.ending or order.cancel_tasks or order.moves) or ledger.orphans()


def urgent(ledger: OrderLedger) -> bool:
    """Whether more than its counts may have to be written. What has something live cannot be at its end."""
    order = ledger.order
    if not ledger.live or acts(ledger) or unanswered(ledger):
        return True
    return ledger.phase != (OrderPhase.PAUSED if order.paused else OrderPhase.RUNNING)


def plan(
    ledger: OrderLedger,
    *,
    epoch: int,
    now: str,
    before: OrderStatus | None = None,
    late: bool = False,
    ends: bool = True,
) -> list[Item]:
    """What has to be written for the order's fulfilments, each item by itself; with the last end, the order's own.

    `late`: the order's deadline has passed. `ends`: whether the order itself may end now.
    """
    releases = [
        release.ended_by_report(ledger.live[identity], ledger, epoch=epoch, now=now) for identity in ledger.over
    ]
    final = finish(ledger, [ended for ended, _ in releases], epoch=epoch, now=now, before=before) if ends else None
    if final is not None:
        whole = _together([*(item for _, item in releases), _telling(ledger, final)])
        if whole.weight() <= _MOST_OPERATIONS and whole.size() <= _MOST_BYTES:
            return [whole]
    items = [item for _, item in releases]
    items.extend(islice(stops(ledger, late=late, epoch=epoch), STOPS_AT_ONCE))
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
        status = msgspec.structs.replace(status, replaced_by=ledger.replaced_by)
    compares = [mod_is(key, ledger.status_revision)]
    if status.phase in FINAL_ORDER:
        compares.append(mod_is(keys.order(ledger.order.id), ledger.revision))
    return Item(compares=tuple(compares), then=(put(key, codec.encode(status)),))


def _orphans(ledger: OrderLedger, *, epoch: int, now: str) -> Iterable[Item]:
    """Tasks whose fulfilment vanished without an end on record (somebody deleted it by hand) end as Lost."""
    for name, job in ledger.jobs.items():
        if not job.counts[ORPHAN]:
            continue
        for index in job.orphans()[:_ORPHANS_AN_ITEM]:
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
                tasks=(judging.end(seen, ledger, target="", now=now),),
                ended=now,
            )
            key = keys.ended(ledger.order.id, identity)
            yield Item(compares=(absent(key),), then=(put(key, codec.encode(ended)),))
