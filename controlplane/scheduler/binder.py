"""From placements to transactions: fulfilments with fresh identities, claims created in the same item.

Nothing is sent here; the cycle commits what this module builds.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

from controlplane.cache.ledger import OrderLedger
from controlplane.cache.ledgers import Ledgers
from controlplane.engine.decide import Placement
from controlplane.model.fulfilment import Claim, Fulfilment, TaskRef, TaskSpec
from controlplane.model.job import Job
from controlplane.store import codec, keys
from controlplane.store.transaction import Item, Operation, absent, put

_PUTS_AN_ITEM = 25
_BYTES_AN_ITEM = 256 << 10


@dataclass(frozen=True, slots=True)
class Stamp:
    """What all fulfilments of one cycle share."""

    epoch: int
    cycle: int
    now: str


class Binder:
    def __init__(self, ledgers: Ledgers, make_identity: Callable[[], str]) -> None:
        self._ledgers = ledgers
        self._make_identity = make_identity
        self._specs: dict[tuple[str, str], TaskSpec] = {}

    def items(self, placements: Sequence[Placement], stamp: Stamp) -> Iterator[Item]:
        """Items that may be committed independently of each other; those with claims hold one fulfilment each."""
        plain: list[Operation] = []
        size = 0
        tasks = self._tasks(placements, stamp.now)
        for placement in placements:
            ledger = self._ledgers.orders[placement.order]
            for index, attempt in islice(tasks[placement.order, placement.job], placement.count):
                task = TaskRef(job=placement.job, index=index, attempt=attempt)
                fulfilment = self._fulfilment(ledger, placement, task, stamp)
                operation = put(keys.desired(fulfilment.target, fulfilment.id), codec.encode(fulfilment))
                if fulfilment.holds:
                    yield _with_claims(fulfilment, operation)
                    continue
                plain.append(operation)
                size += len(operation.raw)
                if len(plain) == _PUTS_AN_ITEM or size >= _BYTES_AN_ITEM:
                    yield Item(then=tuple(plain))
                    plain, size = [], 0
        if plain:
            yield Item(then=tuple(plain))

    def _tasks(self, placements: Sequence[Placement], now: str) -> dict[tuple[str, str], Iterator[tuple[int, int]]]:
        """The tasks of each group, to be handed out to its placements, which may be on several targets."""
        wanted: Counter[tuple[str, str]] = Counter()
        for placement in placements:
            wanted[placement.order, placement.job] += placement.count
        return {
            (order, job): iter(self._ledgers.orders[order].jobs[job].take(count, now))
            for (order, job), count in wanted.items()
        }

    def _fulfilment(self, ledger: OrderLedger, placement: Placement, task: TaskRef, stamp: Stamp) -> Fulfilment:
        return Fulfilment(
            id=self._make_identity(),
            epoch=stamp.epoch,
            cycle=stamp.cycle,
            order=placement.order,
            target=placement.target,
            tasks=(task,),
            jobs={placement.job: self._spec(ledger, placement.job)},
            requests=dict(placement.signature.requests),
            holds=placement.signature.unique,
            created=stamp.now,
        )

    def _spec(self, ledger: OrderLedger, name: str) -> TaskSpec:
        key = (ledger.order.resolved_digest, name)
        found = self._specs.get(key)
        if found is None:
            if len(self._specs) > 10_000:
                self._specs.clear()
            job = next(resolved.job for resolved in ledger.resolved.jobs if resolved.job.name == name)
            found = self._specs[key] = spec_of(ledger, job)
        return found


def spec_of(ledger: OrderLedger, job: Job) -> TaskSpec:
    """What a joblet needs to run the job: its env, and over it the resources that it names."""
    resources = {resource.name: resource for resource in ledger.resolved.resources}
    handed = {resources[name].key: resources[name].value for name in job.resources if name in resources}
    return TaskSpec(
        command=job.command,
        image=job.image,
        environment={**job.env, **handed},
        requests=job.requests or {},
        time_limit=job.time_limit,
    )


def _with_claims(fulfilment: Fulfilment, placing: Operation) -> Item:
    claims = tuple(
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
    return Item(compares=tuple(absent(keys.claim(name)) for name in fulfilment.holds), then=(placing, *claims))
