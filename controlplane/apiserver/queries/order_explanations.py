"""Questions about orders to the engine: why an order waits, and how a planned order would go. Nothing is written."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import NamedTuple, TypeVar

from msgspec.structs import replace

from controlplane.aio.clock import Clock
from controlplane.apiserver import authorisation
from controlplane.apiserver.admission import catalogue, named_admission
from controlplane.apiserver.admission.admit_caught_up import admit_caught_up
from controlplane.apiserver.admission.admit_order import OrderAdmission
from controlplane.apiserver.admission.catalogue import Catalogue, Overlay
from controlplane.apiserver.admission.order_quotas import Quotas
from controlplane.apiserver.api_ports import Reads
from controlplane.apiserver.call import Call
from controlplane.apiserver.fresh_reads import fresh, order_status
from controlplane.apiserver.queries.frozen_worlds import FrozenWorlds, cycle_of
from controlplane.apiserver.queries.masking import mask_explanation, mask_plan, sees_order
from controlplane.cache.ledgers import Ledgers
from controlplane.model import schedule, times
from controlplane.model.access import Subject
from controlplane.model.errors import Invalid, LimitExceeded, NotFound
from controlplane.model.explanation import Explanation, Plan
from controlplane.model.isolation import Casualties
from controlplane.model.lifecycle import FINAL_ORDER
from controlplane.model.order import Order, OrderRequest, OrderStatus
from controlplane.model.target import Target
from controlplane.store import keys
from controlplane.survey.explaining import explain, why_isolated
from controlplane.survey.planning import plan

E = TypeVar("E")

MAX_CHANGES = 1000


class PlanQuestion(NamedTuple):
    """The fate of `order`, with some targets more and some fewer."""

    order: OrderRequest
    added: list[Target]
    removed: list[str]


class OrderExplanations:
    """`encode` runs in the thread of the answer: for many targets encoding takes long, too."""

    def __init__(self, reads: Reads, clock: Clock, admission: OrderAdmission, quotas: Quotas) -> None:
        self._reads = reads
        self._clock = clock
        self._admission = admission
        self._quotas = quotas
        self._worlds = FrozenWorlds(reads.cache, reads.store)

    async def explain(self, call: Call, order: str, cycle: int, encode: Callable[[Explanation], E]) -> E:
        """The order as the cycle of the number saw it, or as of now for 0."""
        if cycle < 0:
            raise Invalid("cycle", f"must be the number of a cycle, or 0 for now, not {cycle}")
        snapshot = await fresh(self._reads.cache, call)
        owners = authorisation.visible_owners(call.subject)
        if cycle:
            record = cycle_of(snapshot, cycle)
            then = times.parse(record.now, "now")
            return await self._worlds.ask_of(
                record, lambda world: encode(_explain(world, owners, order, then, record.n))
            )
        now = self._clock.wall()
        return await self._worlds.ask(lambda world: encode(_explain(world, owners, order, now)))

    async def plan(self, call: Call, question: PlanQuestion, encode: Callable[[Plan], E]) -> E:
        if len(question.added) + len(question.removed) > MAX_CHANGES:
            raise LimitExceeded(f"with_targets: must not change more than {MAX_CHANGES} targets", field="with_targets")
        await fresh(self._reads.cache, call)
        # The planned order gets an identity of its own, and so is the youngest order.
        wish = self._admission.identified(replace(question.order, id=""))
        asked = question._replace(order=wish)
        order, added = await admit_caught_up(
            self._reads, call.subject, lambda existing: self._admit(call.subject, asked, existing)
        )
        with self._quotas.entrance() as entrance:
            entrance.enter(order)
        now = self._clock.wall()
        owners = authorisation.visible_owners(call.subject)

        def answer(world: Ledgers) -> E:
            planned = plan(world, order, now, added=added, removed=question.removed)
            return encode(planned if owners is None else mask_plan(planned, sees_order(world, owners)))

        return await self._worlds.ask(answer)

    def _admit(self, subject: Subject, question: PlanQuestion, existing: Catalogue) -> tuple[Order, list[Target]]:
        """The order as a submit would store it, in the changed world."""
        for at, name in enumerate(question.removed):
            catalogue.target(existing, name, f"without_targets[{at}]")
        added = [
            named_admission.admit(target, existing, f"with_targets[{at}]") for at, target in enumerate(question.added)
        ]
        if len({target.name for target in added} | set(question.removed)) < len(added) + len(question.removed):
            raise Invalid("with_targets", "must not name a target twice, nor one that is taken away")
        changed = Overlay(existing, {(Target, target.name): target for target in added}, existing.settings())
        order = self._admission.prepare(subject, question.order, changed).order
        return _first_run(order, self._clock.wall()), added


def _first_run(order: Order, now: datetime) -> Order:
    """Of a recurring order its first run is planned."""
    following = schedule.next_after(order.schedule, now) if order.schedule is not None else None
    return order if following is None else replace(order, schedule=None, not_before=times.show(following))


def _explain(
    ledgers: Ledgers, owners: frozenset[str] | None, identity: str, now: datetime, cycle: int | None = None
) -> Explanation:
    """For a caller who may see the orders of these owners (None: of all)."""
    sees = sees_order(ledgers, owners)
    if not ledgers.cache.snapshot.has(keys.ORDERS, identity) or not sees(identity):
        when = "" if cycle is None else f" when cycle {cycle} was decided"
        raise NotFound(f"id: there {'is' if cycle is None else 'was'} no order {identity}{when}", field="id")
    explanation = _explained(ledgers, identity, now, cycle)
    return explanation if owners is None else mask_explanation(explanation, sees)


def _explained(ledgers: Ledgers, identity: str, now: datetime, cycle: int | None) -> Explanation:
    """An order which is over has no ledger and no waiting tasks."""
    if identity in ledgers.orders:
        return explain(ledgers, identity, now, cycle)
    snapshot = ledgers.cache.snapshot
    status = order_status(snapshot, identity)
    template = ledgers.templates.get(identity)
    if template is not None and (status is None or status.phase not in FINAL_ORDER):
        said = _recurs(template.order, status)
    else:
        said = f"The order is over: {status.phase}." if status is not None else "The order cannot be read."
    isolated = why_isolated(ledgers, identity, Casualties())
    conclusion = f"{isolated} {said}" if isolated else said
    return Explanation(order=identity, cycle=cycle, revision=snapshot.revision, conclusion=conclusion)


def _recurs(order: Order, status: OrderStatus | None) -> str:
    assert order.schedule is not None
    runs = status.runs if status is not None else 0
    front = (
        f"The order recurs ({order.schedule.cron}, {order.schedule.tz}): its runs, {runs} so far, wait for themselves."
    )
    if order.paused:
        return f"{front} It is paused and makes none."
    return f"{front} The next comes at {status.next}." if status is not None and status.next else front
