"""What one target carries and how it fared, and what one owner has placed: running totals, never counted anew.

The fulfilments of a target are a persistent map, so that who decides elsewhere keeps the picture it began with.
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


class Kind(msgspec.Struct, frozen=True, gc=False):
    """All that neighbours may ask of each other."""

    labels: tuple[tuple[str, str], ...] = ()
    class_: str = ""
    exclusive: bool = False
    anti_affinity: tuple[Constraint, ...] = ()


PLAIN = Kind()


def kind_of(traits: Traits | None) -> Kind:
    if traits is None:
        return PLAIN
    return Kind(tuple(sorted(traits.labels.items())), traits.class_, traits.exclusive, traits.anti_affinity)


@dataclass(slots=True)
class Use:
    """How many tasks are placed, and what they request in all."""

    tasks: int = 0
    quantities: dict[str, Number] = field(default_factory=dict)

    def add(self, fulfilment: Fulfilment, sign: int = 1) -> None:
        self.tasks += sign * len(fulfilment.tasks)
        for name, amount in fulfilment.requests.items():
            self.quantities[name] = self.quantities.get(name, 0) + sign * amount


@dataclass(slots=True)
class TargetLedger:
    """What is placed on one target: how much of each quantity, by which fulfilments, and who its neighbours are.

    `failures` holds when attempts failed there, as long as their ends are on record. `version` tells that it changed.
    """

    used: dict[str, Number] = field(default_factory=dict)
    fulfilments: Map[str, Fulfilment] = field(default_factory=Map)
    kinds: Counter[Kind] = field(default_factory=Counter)
    failures: Map[str, str] = field(default_factory=Map)
    version: int = 0

    def add(self, fulfilment: Fulfilment) -> None:
        """One that is not there yet."""
        self.version += 1
        self.fulfilments = self.fulfilments.set(fulfilment.id, fulfilment)
        for name, amount in fulfilment.requests.items():
            self.used[name] = self.used.get(name, 0) + amount
        self.kinds[kind_of(fulfilment.traits)] += len(fulfilment.tasks)

    def remove(self, identity: str) -> Fulfilment | None:
        known = self.fulfilments.get(identity)
        if known is None:
            return None
        self.version += 1
        self.fulfilments = self.fulfilments.delete(identity)
        for name, amount in known.requests.items():
            self.used[name] = self.used.get(name, 0) - amount
        kind = kind_of(known.traits)
        self.kinds[kind] -= len(known.tasks)
        if not self.kinds[kind]:
            del self.kinds[kind]
        if not self.fulfilments:
            self.used.clear()
        return known

    def failed(self, identity: str, when: str | None) -> None:
        """The fulfilment ended there with a failure; None when that is no longer on record."""
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
    """What each owner has placed."""

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
        """Rounded: fractions that came and went must leave no trace, or a list would not lead to the same."""
        return {
            owner: (use.tasks, {name: whole(round(amount, 9)) for name, amount in use.quantities.items()})
            for owner, use in self.uses.items()
        }


def failed_at(ended: Ended) -> str | None:
    """When it failed, if the target may be to blame: one of its attempts failed, for whatever reason."""
    return ended.ended if any(task.phase == "Failed" for task in ended.tasks) else None
