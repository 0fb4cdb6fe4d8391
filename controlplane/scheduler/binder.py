"""From decisions to transactions: fulfilments with fresh identities, claims created in the same item, evictions.

Nothing is sent here; the cycle commits what this module builds.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from itertools import groupby, islice

import msgspec

from controlplane.cache.detour import Detour
from controlplane.cache.ledger import OrderLedger
from controlplane.cache.ledgers import Ledgers
from controlplane.cache.restoring import attempt_floor
from controlplane.cache.snapshot import Snapshot
from controlplane.engine import preempting
from controlplane.engine.decide import Placement
from controlplane.engine.preempting import Eviction
from controlplane.engine.signature import Signature
from controlplane.model import nodes, packing
from controlplane.model.errors import LimitExceeded
from controlplane.model.fulfilment import Claim, Fulfilment, TaskRef, TaskSpec, Traits
from controlplane.model.isolation import Bystander, Ward
from controlplane.model.job import Job
from controlplane.model.quantity import Number
from controlplane.model.scalepolicy import REMOVE, Made
from controlplane.model.target import Target
from controlplane.store import codec, keys, transaction
from controlplane.store.transaction import Compare, Item, Operation, absent, mod_is, put, unchanged_below

_PUTS_AN_ITEM = 25
_BYTES_AN_ITEM = 256 << 10
_NO_TRAITS = Traits()
# Per (order, job) and where they may not go, what is to be placed, as (index, attempt).
Tasks = dict[tuple[str, str, Detour], Iterator[tuple[int, int]]]


@dataclass(frozen=True, slots=True)
class Stamp:
    """What all fulfilments of one cycle share. `revision` is that of the picture on which the cycle was decided."""

    epoch: int
    cycle: int
    now: str
    revision: int | None = None


@dataclass(slots=True)
class _Pile:
    """Placements that become one item."""

    guard: tuple[Compare, ...]
    operations: list[Operation] = field(default_factory=list)
    orders: dict[str, Compare] = field(default_factory=dict)
    size: int = 0

    def takes(self, size: int) -> bool:
        full = len(self.operations) == _PUTS_AN_ITEM or self.size + size > _BYTES_AN_ITEM
        return not full or not self.operations

    def add(self, order: str, unchanged: Compare, operation: Operation, size: int) -> None:
        self.operations.append(operation)
        self.orders[order] = unchanged
        self.size += size

    def item(self) -> Item:
        compares = (*self.guard, *self.orders.values())
        return Item(compares=compares, then=tuple(self.operations), about=tuple(self.orders))


class _Guards:
    """For targets that scaling made: compares that nothing changed about them, so that nothing is placed where scaling
    has just found nothing and begins to remove it. Where it has begun, the compare cannot hold."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._compares: dict[str, tuple[Compare, ...]] = {}
        self._closed: set[str] = set()
        self._unchanged = unchanged_below(keys.MADE, snapshot.revision)
        for entry in snapshot.all("status/made"):
            made, name = entry.sound(Made), entry.parts[0]
            self._compares[name] = (mod_is(entry.stored.key, entry.revision),)
            if made is None or made.want == REMOVE:
                self._closed.add(name)
                self._compares[name] = (absent(entry.stored.key),)

    def of(self, target: str) -> tuple[Compare, ...]:
        return self._compares.get(target, ()) if self._compares else ()

    def of_all(self, targets: Set[str]) -> tuple[Compare, ...]:
        """One compare for all of them, since a transaction does not take many."""
        if self._closed & targets:
            return self._compares[min(self._closed & targets)]
        return (self._unchanged,) if targets & self._compares.keys() else ()


class Binder:
    def __init__(self, ledgers: Ledgers, make_identity: Callable[[], str], ward: Ward | None = None) -> None:
        """Orders whose placements cannot be made, or that etcd would not take, are reported to the ward."""
        self._ledgers = ledgers
        self._make_identity = make_identity
        self._ward: Ward = ward or Bystander()
        self._specs: dict[tuple[object, ...], TaskSpec] = {}
        self._traits: dict[Signature, Traits | None] = {}
        # Orders whose placement was refused together with others': they travel alone in the next cycle.
        self._alone: set[str] = set()
        # As they are while a cycle is bound.
        self._limits: dict[str, Number | None] = {}
        self._left_out: set[str] = set()

    def items(self, placements: Sequence[Placement], stamp: Stamp) -> Iterator[Item]:
        """Items that may be committed independently of each other: a gang in one, claims one fulfilment each.

        Each is about the orders of which it holds placements. It compares, once for each of its orders, that the order
        is what it was decided on: what its user wished since then, a cancel or a pause, refuses the placement. The
        status is not compared, since folding it is no reason to refuse anything; see `Sending` for ends that the leader
        decides on its own.
        """
        self._limits.clear()
        self._left_out.clear()
        alone, self._alone = self._alone, set()
        piles: dict[tuple[str, str], _Pile] = {}
        guards = _Guards(self._ledgers.cache.snapshot)
        tasks = self._tasks(placements, stamp)
        ledgers = {order: self._ledgers.orders[order] for order, _, _ in tasks}
        unchanged = {order: mod_is(keys.order(order), ledger.revision) for order, ledger in ledgers.items()}
        for gang, some in groupby(placements, key=lambda placement: placement.order if placement.gang else ""):
            bound = self._each(some, ledgers, tasks, stamp, whole=bool(gang))
            if gang:
                yield from self._gang(gang, bound, guards, unchanged.get(gang))
                continue
            for fulfilment, operation in bound:
                guard, order = guards.of(fulfilment.target), fulfilment.order
                if fulfilment.holds:
                    compares = (*guard, unchanged[order], *_free(fulfilment))
                    yield from self._fitting(Item(compares, (operation, *_claims(fulfilment)), about=(order,)))
                    continue
                size = len(operation.raw)
                if size > _BYTES_AN_ITEM:
                    yield from self._fitting(Item((*guard, unchanged[order]), (operation,), about=(order,)))
                    continue
                place = fulfilment.target if guard else "", order if order in alone else ""
                pile = piles.get(place)
                if pile is not None and not pile.takes(size):
                    yield piles.pop(place).item()
                    pile = None
                if pile is None:
                    pile = piles[place] = _Pile(guard)
                pile.add(order, unchanged[order], operation, size)
        yield from (pile.item() for pile in piles.values())

    def refused(self, item: Item) -> None:
        """etcd refused the item. Whoever changes an order holds up the others of its item once, not again and again."""
        if len(item.about) > 1:
            self._alone.update(item.about)

    def _each(
        self,
        placements: Iterable[Placement],
        ledgers: Mapping[str, OrderLedger],
        tasks: Tasks,
        stamp: Stamp,
        *,
        whole: bool,
    ) -> Iterator[tuple[Fulfilment, Operation]]:
        """The fulfilments of the placements. An order that raises gets no more of them; of a whole it is raised."""
        for placement in placements:
            if placement.order not in ledgers or placement.order in self._left_out:
                continue
            try:
                yield from self._bind(ledgers[placement.order], placement, tasks, stamp)
            except Exception as error:
                if whole:
                    raise
                self._leave_out(placement.order, error)

    def _gang(
        self, order: str, bound: Iterable[tuple[Fulfilment, Operation]], guards: _Guards, unchanged: Compare | None
    ) -> Iterator[Item]:
        """The whole gang, or nothing of it."""
        try:
            items = list(_gang(order, bound, guards, unchanged))
        except Exception as error:  # noqa: BLE001 - supervision: the other orders are placed
            self._leave_out(order, error)
            return
        for item in items:
            yield from self._fitting(item)

    def _leave_out(self, order: str, error: Exception) -> None:
        self._left_out.add(order)
        self._ward.failed("Order", order, error)

    def _fitting(self, item: Item) -> Iterator[Item]:
        """What etcd would not take is left out, and its order waits with that reason."""
        try:
            transaction.check(item)
        except LimitExceeded as error:
            why = LimitExceeded(f"what is placed together of the order is too large for etcd: {error}")
            for order in item.about:
                self._leave_out(order, why)
            return
        yield item

    def evictions(self, evictions: Iterable[Eviction], stamp: Stamp) -> Iterator[Item]:
        """Asks for a stop; what was released meanwhile is left alone."""
        for eviction in evictions:
            ledger = self._ledgers.orders.get(eviction.order)
            live = ledger.live.get(eviction.fulfilment) if ledger is not None else None
            if live is None or live.fulfilment.want == "stop":
                continue
            wanted = msgspec.structs.replace(live.fulfilment, epoch=stamp.epoch, want="stop", reason=preempting.REASON)
            place = keys.desired(eviction.target, eviction.fulfilment)
            operation = put(place, codec.encode(wanted))
            yield Item(compares=(mod_is(place, live.revision),), then=(operation,), about=(eviction.order,))

    def _bind(
        self, ledger: OrderLedger, placement: Placement, tasks: Tasks, stamp: Stamp
    ) -> Iterator[tuple[Fulfilment, Operation]]:
        taken = tasks[placement.order, placement.job, placement.signature.detour]
        job, pack = placement.job, placement.signature.pack
        if pack == 1:
            for index, attempt in islice(taken, placement.count):
                alone = (TaskRef(job=job, index=index, attempt=attempt),)
                fulfilment = self._fulfilment(ledger, placement, alone, stamp)
                yield fulfilment, put(keys.desired(fulfilment.target, fulfilment.id), codec.encode(fulfilment))
            return
        for count in packing.sizes(placement.count, pack):
            together = tuple(TaskRef(job=job, index=index, attempt=attempt) for index, attempt in islice(taken, count))
            if together:
                fulfilment = self._fulfilment(ledger, placement, together, stamp)
                yield fulfilment, put(keys.desired(fulfilment.target, fulfilment.id), codec.encode(fulfilment))

    def _tasks(self, placements: Sequence[Placement], stamp: Stamp) -> Tasks:
        """The tasks of each group, to be handed out to its placements, which may be on several targets.

        An order that went or changed while it was decided about has none: it is decided about again.
        """
        wanted: Counter[tuple[str, str, Detour]] = Counter()
        for placement in placements:
            wanted[placement.order, placement.job, placement.signature.detour] += placement.count
        floor = attempt_floor(self._ledgers.cache.snapshot)
        tasks: Tasks = {}
        for (order, job, detour), count in wanted.items():
            ledger = self._ledgers.orders.get(order)
            try:
                if ledger is not None and _as_decided(ledger, stamp.revision):
                    tasks[order, job, detour] = iter(_above(floor, ledger.jobs[job].take(count, stamp.now, detour)))
            except Exception as error:  # noqa: BLE001 - supervision: the other orders are placed
                self._leave_out(order, error)
        return tasks

    def _fulfilment(
        self, ledger: OrderLedger, placement: Placement, tasks: tuple[TaskRef, ...], stamp: Stamp
    ) -> Fulfilment:
        requests = placement.signature.requests
        return Fulfilment(
            id=self._make_identity(),
            epoch=stamp.epoch,
            cycle=stamp.cycle,
            order=placement.order,
            target=placement.target,
            tasks=tasks,
            jobs={placement.job: self._spec(ledger, placement.job, placement.target)},
            requests=dict(requests) if len(tasks) == 1 else packing.together(requests, len(tasks)),
            holds=placement.signature.unique,
            owner=ledger.order.owner,
            traits=self._traits_of(placement.signature),
            created=stamp.now,
        )

    def _traits_of(self, signature: Signature) -> Traits | None:
        if signature not in self._traits:
            if len(self._traits) > 10_000:
                self._traits.clear()
            kind = signature.kind
            traits = Traits(
                labels=dict(kind.labels),
                class_=kind.class_,
                exclusive=kind.exclusive,
                preemptible=signature.preemptible,
                anti_affinity=kind.anti_affinity,
            )
            self._traits[signature] = traits if traits != _NO_TRAITS else None
        return self._traits[signature]

    def _spec(self, ledger: OrderLedger, name: str, target: str) -> TaskSpec:
        order = ledger.order
        more = tuple((one.name, one.key, one.value, one.mount) for one in order.resources)
        found = self._known_spec(ledger, name, (order.resolved_digest, name, *more))
        if found.time_limit is None and (limit := self._default_limit(target)) is not None:
            return msgspec.structs.replace(found, time_limit=limit)
        return found

    def _default_limit(self, target: str) -> Number | None:
        """Of jobs that have none, on this target."""
        if target not in self._limits:
            entry = self._ledgers.cache.snapshot.get("config/targets", target)
            found = entry.sound(Target) if entry is not None else None
            self._limits[target] = found.default_time_limit if found is not None else None
        return self._limits[target]

    def _known_spec(self, ledger: OrderLedger, name: str, key: tuple[object, ...]) -> TaskSpec:
        found = self._specs.get(key)
        if found is None:
            if len(self._specs) > 10_000:
                self._specs.clear()
            job = next(resolved.job for resolved in ledger.resolved.jobs if resolved.job.name == name)
            found = self._specs[key] = spec_of(ledger, job)
        return found


def spec_of(ledger: OrderLedger, job: Job) -> TaskSpec:
    """What a joblet needs to run the job: its env, over it the resources that it names, over all those of the order."""
    known = {resource.name: resource for resource in ledger.resolved.resources}
    handed = [*(known[name] for name in job.resources if name in known), *ledger.order.resources]
    return TaskSpec(
        command=job.command,
        image=job.image,
        environment={**job.env, **{resource.key: resource.mount or resource.value for resource in handed}},
        requests=job.requests or {},
        time_limit=job.time_limit,
        files={resource.mount: resource.value for resource in handed if resource.mount},
        nodes=nodes.of_nodes(job.constraints),
        tolerations=job.tolerations,
        image_pull_secrets=job.image_pull_secrets,
    )


def _as_decided(ledger: OrderLedger, revision: int | None) -> bool:
    return ledger.wants_room() and (revision is None or ledger.revision <= revision)


def _gang(
    order: str, bound: Iterable[tuple[Fulfilment, Operation]], guards: _Guards, unchanged: Compare | None
) -> Iterator[Item]:
    """All fulfilments of the gang with all their claims, in one item."""
    compares: list[Compare] = [unchanged] if unchanged is not None else []
    operations: list[Operation] = []
    targets: set[str] = set()
    for fulfilment, operation in bound:
        compares.extend(_free(fulfilment))
        operations.extend((operation, *_claims(fulfilment)))
        targets.add(fulfilment.target)
    if operations:
        yield Item(compares=(*guards.of_all(targets), *compares), many=tuple(operations), about=(order,))


def _free(fulfilment: Fulfilment) -> tuple[Compare, ...]:
    return tuple(absent(keys.claim(name)) for name in fulfilment.holds)


def _claims(fulfilment: Fulfilment) -> tuple[Operation, ...]:
    return tuple(
        put(
            keys.claim(name),
            codec.encode(
                Claim(
                    resource=name,
                    fulfilment=fulfilment.id,
                    order=fulfilment.order,
                    target=fulfilment.target,
                    epoch=fulfilment.epoch,
                )
            ),
        )
        for name in fulfilment.holds
    )


def _above(floor: int, taken: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """After a restore, attempts are numbered above all that any joblet knows."""
    return [(index, max(attempt, floor + 1)) for index, attempt in taken] if floor else taken
