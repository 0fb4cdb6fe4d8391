"""The order controller: ends reported attempts, asks for stops, watches deadlines, folds and finishes the status.

Status is written when the phase changes or a user waits for an answer, and for counts alone at most once a second. The
end of the last attempts and the final status are a single write, unless too large. Missing the deadline is a single
write, too, however many tasks wait: the status names their job.

A final status compares the order behind the decision, and is not decided while placements of the order are under way
(`cache/sending`), so that no task is placed for an order that is over.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice

import msgspec

from controlplane.aio.clock import Clock
from controlplane.cache.ledger import OrderLedger
from controlplane.cache.ledgers import Ledgers, Touched
from controlplane.controller_manager import attempt_decisions, deadlines, release
from controlplane.controller_manager.controller_writer import ControllerWriter
from controlplane.controller_manager.deadlines import NEVER, Late
from controlplane.controller_manager.folding import finish, fold, status_of
from controlplane.controller_manager.runner import Again
from controlplane.controller_manager.stopping import stops
from controlplane.model import times
from controlplane.model.fulfilment import Ended, ObservedTask
from controlplane.model.lifecycle import FINAL_ORDER, ORDER, OrderPhase, follow
from controlplane.model.order import OrderStatus
from controlplane.model.task import AttemptPhase, TaskState
from controlplane.store import codec, keys
from controlplane.store.transaction import Item, absent, mod_is, put, together

_COUNTS_SECONDS = 1.0
_ORPHANS_AN_ITEM = 500
STOPS_AT_ONCE = 1000
# A larger item would keep other items out of its group.
_MOST_OPERATIONS = 25
_MOST_BYTES = 256 << 10
# Moments are written in milliseconds: the next look must not come before the named moment.
_ROUNDING_SECONDS = 0.002


class OrderController:
    name = "orders"
    kind = "Order"

    def __init__(self, ledgers: Ledgers, writer: ControllerWriter, clock: Clock) -> None:
        self._ledgers = ledgers
        self._writer = writer
        self._clock = clock
        self._written: dict[str, float] = {}
        # Orders that come back by themselves, when their counts may be written.
        self._counting: set[str] = set()

    def every_key(self) -> Iterable[str]:
        return list(self._ledgers.orders)

    def keys_affected_by(self, touched: Touched) -> Iterable[str]:
        """Orders that need action now: most changes move counts only, which are folded when their time comes."""
        affected = []
        for key in touched.orders:
            ledger = self._ledgers.orders.get(key)
            if ledger is None:
                self._forget(key)
            elif not untouched(ledger) and (key not in self._counting or urgent(ledger)):
                affected.append(key)
        return affected

    async def reconcile(self, key: str) -> Again | None:
        self._counting.discard(key)
        ledger = self._ledgers.orders.get(key)
        late = NEVER
        if ledger is not None and ledger.order.deadline is not None:
            late = await self._expire(ledger)
        if ledger is not None and (late.passed or acts(ledger)):
            epoch, now = self._writer.epoch, self._now()
            ends = not self._ledgers.sending.unsettled(key)
            before = self._ledgers.cache.snapshot.order_status(key)
            await self._writer.write(plan(ledger, epoch=epoch, now=now, before=before, late=late.passed, ends=ends))
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
        """Fails waiting tasks that are too late; a concurrent change of the order goes first."""
        late = deadlines.look(ledger, self._now())
        if late.jobs and not self._ledgers.sending.unsettled(ledger.order.id):
            identity = ledger.order.id
            before = self._ledgers.cache.snapshot.order_status(identity)
            status = status_of(ledger, epoch=self._writer.epoch, now=self._now(), before=before)
            status = msgspec.structs.replace(status, expired=tuple(sorted({*ledger.expired, *late.jobs})))
            unchanged = mod_is(keys.order(identity), ledger.revision)
            await self._writer.write_together([Item(compares=(unchanged,)), _telling(ledger, status)])
        return late

    def _by(self, moment: str, again: Again | None) -> Again:
        """At the latest at the moment."""
        left = (times.parse(moment, "moment") - self._clock.wall()).total_seconds() + _ROUNDING_SECONDS
        return Again(after_seconds=max(0.0, left if again is None else min(left, again.after_seconds)))

    def _forget(self, key: str) -> None:
        self._written.pop(key, None)
        self._counting.discard(key)

    async def _fold(self, ledger: OrderLedger) -> Again | None:
        before = self._ledgers.cache.snapshot.order_status(ledger.order.id)
        status = fold(ledger, epoch=self._writer.epoch, now=self._now(), before=before)
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
        await self._writer.write([_telling(ledger, status)])
        return None if status.phase in FINAL_ORDER else Again(after_seconds=_COUNTS_SECONDS)

    def _now(self) -> str:
        return times.show(self._clock.wall())


def untouched(ledger: OrderLedger) -> bool:
    """No task was ever placed or ended, the user changed and wishes nothing, and no deadline is set."""
    order = ledger.order
    if ledger.live or ledger.ended_any or ledger.status_revision or ledger.changed:
        return False
    return not (order.cancel or order.paused or order.deadline is not None)


def unanswered(ledger: OrderLedger) -> bool:
    """The user changed the order, and the status does not say yet that the leader saw the change."""
    return ledger.changed and ledger.answered < ledger.revision


def acts(ledger: OrderLedger) -> bool:
    """Whether attempts may have to be ended or stopped."""
    order = ledger.order
    return bool(ledger.over or ledger.ending or order.cancel_tasks or order.moves) or ledger.orphans()


def urgent(ledger: OrderLedger) -> bool:
    """Whether more than counts may have to be written. An order with live fulfilments cannot be at its end."""
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
    """The writes for the order's fulfilments, as independent items; with the last end, also the final status.

    `late`: the order's deadline has passed. `ends`: whether the order itself may end now.
    """
    releases = [
        release.ended_by_report(ledger.live[identity], ledger, epoch=epoch, now=now) for identity in ledger.over
    ]
    final = finish(ledger, [ended for ended, _ in releases], epoch=epoch, now=now, before=before) if ends else None
    if final is not None:
        whole = together([*(item for _, item in releases), _telling(ledger, final)])
        if whole.weight() <= _MOST_OPERATIONS and whole.size() <= _MOST_BYTES:
            return [whole]
    items = [item for _, item in releases]
    items.extend(islice(stops(ledger, late=late, epoch=epoch), STOPS_AT_ONCE))
    if ledger.orphans():
        items.extend(_orphans(ledger, epoch=epoch, now=now))
    return items


def _telling(ledger: OrderLedger, status: OrderStatus) -> Item:
    follow(ORDER, ledger.phase, status.phase)
    key = keys.order_status(ledger.order.id)
    if ledger.replaced_by:
        status = msgspec.structs.replace(status, replaced_by=ledger.replaced_by)
    compares = [mod_is(key, ledger.status_revision)]
    if status.phase in FINAL_ORDER:
        compares.append(mod_is(keys.order(ledger.order.id), ledger.revision))
    return Item(compares=tuple(compares), then=(put(key, codec.encode(status)),))


def _orphans(ledger: OrderLedger, *, epoch: int, now: str) -> Iterable[Item]:
    """Tasks whose fulfilment was deleted by hand, without an end on record, end as Lost."""
    for name, job in ledger.jobs.items():
        for index in islice(job.tasks_in(TaskState.ORPHANED), _ORPHANS_AN_ITEM):
            attempt = job.attempt(index)
            seen = ObservedTask(job=name, index=index, attempt=attempt, phase=AttemptPhase.FAILED, reason="Lost")
            # The fulfilment's identity went with its key: the name of the attempt takes its place.
            identity = f"lost-{name}-{index}-{attempt}"
            ended = Ended(
                id=identity,
                order=ledger.order.id,
                target="",
                epoch=epoch,
                cycle=0,
                tasks=(attempt_decisions.end(seen, ledger, target="", now=now),),
                ended=now,
            )
            key = keys.ended(ledger.order.id, identity)
            yield Item(compares=(absent(key),), then=(put(key, codec.encode(ended)),))
