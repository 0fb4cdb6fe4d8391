"""From decisions to transactions: fulfilments with fresh identities, claims created in the same item, evictions.

The binder sends no transaction; the cycle commits the items which this module builds.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from itertools import groupby, islice

import msgspec

from controlplane.cache.ledger import OrderLedger
from controlplane.cache.ledgers import Ledgers
from controlplane.cache.placement_hint import PlacementHint
from controlplane.cache.restore_state import attempt_floor
from controlplane.cache.snapshot import Snapshot
from controlplane.engine import preempting
from controlplane.engine.decision import Placement
from controlplane.engine.made_room import MadeRoom
from controlplane.engine.preempting import Eviction
from controlplane.engine.signature import Signature
from controlplane.model import nodes, packing
from controlplane.model.errors import LimitExceeded
from controlplane.model.fulfilment import Claim, Fulfilment, TaskRef, TaskSpec, Traits
from controlplane.model.isolation import Bystander, Ward
from controlplane.model.job import Job
from controlplane.model.quantity import Number
from controlplane.model.scalepolicy import REMOVE
from controlplane.store import codec, keys, transaction
from controlplane.store.transaction import Compare, Item, Operation, absent, delete, mod_is, put, unchanged_below

_PUTS_AN_ITEM = 25
_BYTES_AN_ITEM = 256 << 10
_NO_TRAITS = Traits()
# For each order, job and placement hint, the tasks to be placed, as (index, attempt).
Tasks = dict[tuple[str, str, PlacementHint], Iterator[tuple[int, int]]]


@dataclass(frozen=True, slots=True)
class Stamp:
    """Values shared by all fulfilments of a cycle. `revision` is the revision of the snapshot on which the cycle was
    decided."""

    epoch: int
    cycle: int
    now: str
    revision: int | None = None


@dataclass(slots=True)
class _Pile:
    """Placements which become a single item."""

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
    """Compares for targets made by scaling: the record of the target is unchanged, so a placement loses the race
    against the removal of the target. If the removal has begun, the compare always fails."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._compares: dict[str, tuple[Compare, ...]] = {}
        self._closed: set[str] = set()
        self._unchanged = unchanged_below(keys.MADE.prefix, snapshot.revision)
        for entry in snapshot.all(keys.MADE):
            record, name = entry.readable(), entry.parts[0]
            self._compares[name] = (mod_is(entry.stored.key, entry.revision),)
            if record is None or record.want == REMOVE:
                self._closed.add(name)
                self._compares[name] = (absent(entry.stored.key),)

    def of(self, target: str) -> tuple[Compare, ...]:
        return self._compares.get(target, ()) if self._compares else ()

    def of_all(self, targets: Set[str]) -> tuple[Compare, ...]:
        """A single compare for all these targets, since a transaction does not take many compares."""
        if self._closed & targets:
            return self._compares[min(self._closed & targets)]
        return (self._unchanged,) if targets & self._compares.keys() else ()


class Binder:
    def __init__(self, ledgers: Ledgers, make_identity: Callable[[], str], ward: Ward | None = None) -> None:
        """Orders whose placements cannot be built, or would not be accepted by etcd, are reported to the ward."""
        self._ledgers = ledgers
        self._make_identity = make_identity
        self._ward: Ward = ward or Bystander()
        self._specs: dict[tuple[object, ...], TaskSpec] = {}
        self._traits: dict[Signature, Traits | None] = {}
        # Orders whose placement was refused in an item shared with other orders: their placements travel in items of
        # their own in the next cycle.
        self._alone: set[str] = set()
        # Valid while a cycle is bound: default time limits by target, and orders left out.
        self._limits: dict[str, Number | None] = {}
        self._left_out: set[str] = set()

    def items(self, placements: Sequence[Placement], stamp: Stamp) -> Iterator[Item]:
        """Items which may be committed independently of each other: a gang in a single item, each fulfilment with
        claims in an item of its own.

        Each item is about the orders whose placements the item holds. The item compares, once for each of these orders,
        the revision of the order on which the cycle was decided: a wish of the user since then, a cancel or a pause,
        refuses the placement. The status is not compared, since folding the status is no reason to refuse a placement;
        see `Sending` for ends which the leader decides on its own.
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
        """Called when etcd refused the item. The orders of the item travel alone in the next cycle, so a change of a
        single order delays the other orders of the item once, not again and again."""
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
        """The fulfilments of the placements. An order which raises gets no further fulfilments; with `whole`, the error
        is raised to the caller."""
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
        """The items of the whole gang, or no item when an error was raised; the order is then left out."""
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
        """The item, unless the item is too large for etcd: then the orders of the item are left out, and wait with this
        reason."""
        try:
            transaction.check(item)
        except LimitExceeded as error:
            why = LimitExceeded(f"what is placed together of the order is too large for etcd: {error}")
            for order in item.about:
                self._leave_out(order, why)
            return
        yield item

    def evictions(self, evictions: Iterable[Eviction], stamp: Stamp) -> Iterator[Item]:
        """Items which ask for a stop and record the order that needs the room; fulfilments released or already stopping
        are skipped."""
        for eviction in evictions:
            ledger = self._ledgers.orders.get(eviction.order)
            live = ledger.live.get(eviction.fulfilment) if ledger is not None else None
            if live is None or live.fulfilment.want == "stop":
                continue
            wanted = msgspec.structs.replace(live.fulfilment, epoch=stamp.epoch, want="stop", reason=preempting.REASON)
            place = keys.desired(eviction.target, eviction.fulfilment)
            preemption = eviction.on_record(epoch=stamp.epoch, cycle=stamp.cycle)
            record = put(keys.preemption(eviction.target, eviction.fulfilment), codec.encode(preemption))
            operations = (put(place, codec.encode(wanted)), record)
            yield Item(compares=(mod_is(place, live.revision),), then=operations, about=(eviction.order,))

    def used_rooms(self, rooms: Iterable[MadeRoom]) -> Iterator[Item]:
        """Deletes the records of made room for which no task waits any more, or which a cycle gave away."""
        gone = [delete(keys.preemption(room.target, name)) for room in rooms for name in sorted(room.stopped)]
        for at in range(0, len(gone), _PUTS_AN_ITEM):
            yield Item(then=tuple(gone[at : at + _PUTS_AN_ITEM]))

    def _bind(
        self, ledger: OrderLedger, placement: Placement, tasks: Tasks, stamp: Stamp
    ) -> Iterator[tuple[Fulfilment, Operation]]:
        taken = tasks[placement.order, placement.job, placement.signature.hint]
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
        """The tasks of each group, to be handed out to the placements of the group, which may be on several targets.

        An order which ended or changed during the decision gets no tasks here: a later cycle decides about the order
        again.
        """
        wanted: Counter[tuple[str, str, PlacementHint]] = Counter()
        for placement in placements:
            wanted[placement.order, placement.job, placement.signature.hint] += placement.count
        floor = attempt_floor(self._ledgers.cache.snapshot)
        tasks: Tasks = {}
        for (order, job, hint), count in wanted.items():
            ledger = self._ledgers.orders.get(order)
            try:
                if ledger is not None and _as_decided(ledger, stamp.revision):
                    tasks[order, job, hint] = iter(_above(floor, ledger.jobs[job].take(count, stamp.now, hint)))
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
        more = tuple((resource.name, resource.key, resource.value, resource.mount) for resource in order.resources)
        spec = self._known_spec(ledger, name, (order.resolved_digest, name, *more))
        if spec.time_limit is None and (limit := self._default_limit(target)) is not None:
            return msgspec.structs.replace(spec, time_limit=limit)
        return spec

    def _default_limit(self, target: str) -> Number | None:
        """The time limit which this target gives to jobs without a time limit."""
        if target not in self._limits:
            config = self._ledgers.cache.snapshot.target(target)
            self._limits[target] = config.default_time_limit if config is not None else None
        return self._limits[target]

    def _known_spec(self, ledger: OrderLedger, name: str, key: tuple[object, ...]) -> TaskSpec:
        spec = self._specs.get(key)
        if spec is None:
            if len(self._specs) > 10_000:
                self._specs.clear()
            job = next(resolved.job for resolved in ledger.resolved.jobs if resolved.job.name == name)
            spec = self._specs[key] = spec_of(ledger, job)
        return spec


def spec_of(ledger: OrderLedger, job: Job) -> TaskSpec:
    """The data a joblet needs to run the job. Environment: the env of the job, overridden by the resources named by the
    job, overridden by the resources of the order."""
    resources = {resource.name: resource for resource in ledger.resolved.resources}
    handed = [*(resources[name] for name in job.resources if name in resources), *ledger.order.resources]
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
    """All fulfilments of the gang with all claims, in a single item."""
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
    """After a restore, attempts are numbered above every attempt known to any joblet."""
    return [(index, max(attempt, floor + 1)) for index, attempt in taken] if floor else taken
