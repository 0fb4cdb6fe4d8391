"""Load and failures of a target, and placements of an owner: running totals, never counted anew.

The fulfilments of a target are a persistent map, so that a decision in another thread keeps the map it began with.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

import msgspec
from immutables import Map

from controlplane.model.fulfilment import Ended, Fulfilment, Traits
from controlplane.model.job import Constraint
from controlplane.model.quantity import Number, whole
from controlplane.model.task import AttemptPhase


class NeighbourKind(msgspec.Struct, frozen=True, gc=False):
    """All traits that neighbours may ask of each other."""

    labels: tuple[tuple[str, str], ...] = ()
    class_: str = ""
    exclusive: bool = False
    anti_affinity: tuple[Constraint, ...] = ()


PLAIN = NeighbourKind()


def neighbour_kind(traits: Traits | None) -> NeighbourKind:
    if traits is None:
        return PLAIN
    return NeighbourKind(tuple(sorted(traits.labels.items())), traits.class_, traits.exclusive, traits.anti_affinity)


@dataclass(slots=True)
class Use:
    """The number of placed tasks, and their requests in total."""

    tasks: int = 0
    quantities: dict[str, Number] = field(default_factory=dict)

    def add(self, fulfilment: Fulfilment, sign: int = 1) -> None:
        self.tasks += sign * len(fulfilment.tasks)
        for name, amount in fulfilment.requests.items():
            self.quantities[name] = self.quantities.get(name, 0) + sign * amount


@dataclass(slots=True)
class TargetLedger:
    """The load of a target: used quantities, fulfilments, and the kinds of tasks.

    `failures` holds the times at which attempts failed there, while their ends are on record. `version` counts changes.
    """

    used: dict[str, Number] = field(default_factory=dict)
    fulfilments: Map[str, Fulfilment] = field(default_factory=Map)
    kinds: Counter[NeighbourKind] = field(default_factory=Counter)
    failures: Map[str, str] = field(default_factory=Map)
    version: int = 0

    def add(self, fulfilment: Fulfilment) -> None:
        """A fulfilment that is not there yet."""
        self.version += 1
        self.fulfilments = self.fulfilments.set(fulfilment.id, fulfilment)
        for name, amount in fulfilment.requests.items():
            self.used[name] = self.used.get(name, 0) + amount
        self.kinds[neighbour_kind(fulfilment.traits)] += len(fulfilment.tasks)

    def remove(self, identity: str) -> Fulfilment | None:
        fulfilment = self.fulfilments.get(identity)
        if fulfilment is None:
            return None
        self.version += 1
        self.fulfilments = self.fulfilments.delete(identity)
        for name, amount in fulfilment.requests.items():
            self.used[name] = self.used.get(name, 0) - amount
        kind = neighbour_kind(fulfilment.traits)
        self.kinds[kind] -= len(fulfilment.tasks)
        if not self.kinds[kind]:
            del self.kinds[kind]
        if not self.fulfilments:
            self.used.clear()
        return fulfilment

    def failed(self, identity: str, when: str | None) -> None:
        """The fulfilment ended there with a failure; None when the end is no longer on record."""
        if when is not None:
            self.failures = self.failures.set(identity, when)
        elif identity in self.failures:
            self.failures = self.failures.delete(identity)
        else:
            return
        self.version += 1

    @property
    def empty(self) -> bool:
        return not self.fulfilments and not self.failures


@dataclass(slots=True)
class OwnerLedgers:
    """The placements of each owner."""

    uses: dict[str, Use] = field(default_factory=dict)

    def add(self, fulfilment: Fulfilment) -> None:
        use = self.uses.get(fulfilment.owner)
        if use is None:
            use = self.uses[fulfilment.owner] = Use()
        use.add(fulfilment)

    def remove(self, fulfilment: Fulfilment) -> None:
        use = self.uses.get(fulfilment.owner)
        if use is None:
            return
        use.add(fulfilment, -1)
        if use.tasks <= 0:
            del self.uses[fulfilment.owner]

    def frozen(self) -> Mapping[str, tuple[int, dict[str, Number]]]:
        """Rounded: leftovers of float sums must not show, or a fresh list would give another result."""
        return {
            owner: (use.tasks, {name: whole(round(amount, 9)) for name, amount in use.quantities.items()})
            for owner, use in self.uses.items()
        }


def failed_at(ended: Ended) -> str | None:
    """The time of the failure, if any attempt failed for any reason: the target may be to blame."""
    return ended.ended if any(task.phase == AttemptPhase.FAILED for task in ended.tasks) else None
