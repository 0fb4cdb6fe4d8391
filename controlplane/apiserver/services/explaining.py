"""The half of the Orders service that asks the engine: why an order waits, what would become of one. Writes nothing."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from msgspec.structs import replace

from controlplane.apiserver.admission import catalogue as names
from controlplane.apiserver.admission import named
from controlplane.apiserver.admission import order as orders
from controlplane.apiserver.admission.catalogue import Catalogue, Overlay
from controlplane.apiserver.catching_up import admitted
from controlplane.apiserver.dependencies import ApiDependencies
from controlplane.apiserver.guard import Context, answered
from controlplane.apiserver.reading import fresh
from controlplane.apiserver.request_limits import MAX_CHANGES
from controlplane.apiserver.services.requests import order_request
from controlplane.apiserver.still import StillWorlds, cycle_of
from controlplane.apiserver.submission import Submissions
from controlplane.apiserver.views.orders import status_in
from controlplane.cache.ledgers import Ledgers
from controlplane.engine.explaining import explain, why_isolated
from controlplane.engine.planning import plan
from controlplane.model import schedule, times
from controlplane.model.errors import Invalid, LimitExceeded, NotFound
from controlplane.model.explanation import Explanation, Plan
from controlplane.model.isolation import Casualties
from controlplane.model.lifecycle import FINAL_ORDER
from controlplane.model.order import Order, OrderRequest, OrderStatus
from controlplane.model.target import Target
from controlplane.wire import convert
from controlplane.wire.v1 import explanations_pb2


class Explaining:
    def __init__(self, deps: ApiDependencies, submissions: Submissions) -> None:
        self._deps = deps
        self._submissions = submissions
        self._worlds = StillWorlds(deps.cache, deps.store)

    @answered
    async def Explain(self, request: Any, context: Context) -> Any:
        if request.cycle < 0:
            raise Invalid("cycle", f"must be the number of a cycle, or 0 for now, not {request.cycle}")
        snapshot = await fresh(self._deps.cache, request.min_revision, context)
        if request.cycle:
            record = cycle_of(snapshot, request.cycle)
            then = times.parse(record.now, "now")
            return await self._worlds.ask_of(record, lambda world: _shown(_explain(world, request.id, then, record.n)))
        now = self._deps.clock.wall()
        return await self._worlds.ask(lambda world: _shown(_explain(world, request.id, now)))

    @answered
    async def Plan(self, request: Any, context: Context) -> Any:
        if len(request.with_targets) + len(request.without_targets) > MAX_CHANGES:
            raise LimitExceeded(f"with_targets: must not change more than {MAX_CHANGES} targets", field="with_targets")
        await fresh(self._deps.cache, request.min_revision, context)
        # Whatever its identity, what is planned is an order of its own, and the youngest.
        wish, more = await self._deps.offload.run(lambda: _wishes(request))
        wish = self._submissions.identified(wish)
        less = list(request.without_targets)
        order, added = await admitted(self._deps, lambda known: self._admit(wish, more, less, known))
        with self._submissions.quotas.entrance() as entrance:
            entrance.enter(order)
        now = self._deps.clock.wall()
        return await self._worlds.ask(lambda world: _planned(plan(world, order, now, added=added, removed=less)))

    def _admit(
        self, wish: OrderRequest, more: list[Target], less: list[str], known: Catalogue
    ) -> tuple[Order, list[Target]]:
        """The order as submitting it would store it, in the changed world."""
        for at, name in enumerate(less):
            names.target(known, name, f"without_targets[{at}]")
        added = [named.admit(target, known, f"with_targets[{at}]") for at, target in enumerate(more)]
        if len({target.name for target in added} | set(less)) < len(added) + len(less):
            raise Invalid("with_targets", "must not name a target twice, nor one that is taken away")
        changed = Overlay(known, {(Target, target.name): target for target in added}, known.settings())
        order = self._submissions.prepare(wish, orders.digest_of(wish), changed).order
        return _first_run(order, self._deps.clock.wall()), added


def _wishes(request: Any) -> tuple[OrderRequest, list[Target]]:
    """The order that is planned and the targets that are added for it."""
    wish = replace(order_request(request.order), id="")
    if request.HasField("priority"):
        wish = replace(wish, priority=request.priority)
    return wish, [convert.to_model(target, Target) for target in request.with_targets]


def _shown(explanation: Explanation) -> Any:
    """For many targets that takes long, too."""
    return convert.to_wire(explanation, explanations_pb2.Explanation)


def _planned(plan: Plan) -> Any:
    return convert.to_wire(plan, explanations_pb2.Plan)


def _first_run(order: Order, now: datetime) -> Order:
    """Of a recurring order its first run is planned."""
    following = schedule.next_after(order.schedule, now) if order.schedule is not None else None
    return order if following is None else replace(order, schedule=None, not_before=times.show(following))


def _explain(ledgers: Ledgers, identity: str, now: datetime, cycle: int | None = None) -> Explanation:
    """What is over has no ledger, and nothing of it waits."""
    snapshot = ledgers.cache.snapshot
    if snapshot.get("config/orders", identity) is None:
        when = "" if cycle is None else f" when cycle {cycle} was decided"
        raise NotFound(f"id: there {'is' if cycle is None else 'was'} no order {identity}{when}", field="id")
    if identity in ledgers.orders:
        return explain(ledgers, identity, now, cycle)
    status = status_in(snapshot.get("status/orders", identity))
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
    made = status.runs if status is not None else 0
    front = (
        f"The order recurs ({order.schedule.cron}, {order.schedule.tz}): its runs, {made} so far, wait for themselves."
    )
    if order.paused:
        return f"{front} It is paused and makes none."
    return f"{front} The next comes at {status.next}." if status is not None and status.next else front
