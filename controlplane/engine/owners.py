"""Owners: the usage of each owner, against the quota and against other owners (dominant resource fairness)."""

from __future__ import annotations

from typing import Self

from controlplane.engine.signature import Signature
from controlplane.engine.world import World
from controlplane.model.quantity import EPSILON, Number
from controlplane.model.settings import EVERYONE, Quota

_NO_QUOTA = Quota()
_UNLIMITED = 1 << 40
# How far the share of an owner may get ahead of the next owner before the turn passes on: fine enough to be fair,
# coarse enough that the number of turns does not grow with the number of tasks.
QUANTUM = 0.005


class Owners:
    def __init__(self, world: World) -> None:
        self._quotas = world.settings.quotas
        self._tasks = {owner: tasks for owner, (tasks, _) in world.owners.items()}
        self._used = {owner: dict(used) for owner, (_, used) in world.owners.items()}
        self._total: dict[str, Number] = {}
        for row in world.targets:
            for name, amount in row.capacity.items():
                self._total[name] = self._total.get(name, 0) + amount

    def copy(self) -> Self:
        other = object.__new__(type(self))
        other._quotas, other._total = self._quotas, self._total
        other._tasks = dict(self._tasks)
        other._used = {owner: dict(used) for owner, used in self._used.items()}
        return other

    def without_use_of(self, owner: str) -> Self:
        """A copy in which all work of the owner is over."""
        other = self.copy()
        other._tasks.pop(owner, None)
        other._used.pop(owner, None)
        return other

    def share(self, owner: str) -> float:
        """The dominant share: the largest part of the total capacity used by the owner, over all quantities."""
        used = self._used.get(owner)
        most = 0.0
        for name, amount in used.items() if used is not None else ():
            total = self._total.get(name, 0)
            if total > 0 and amount / total > most:
                most = amount / total
        return most

    def until(self, owner: str, signature: Signature, share: float) -> int:
        """How many such tasks bring the owner above the share; at least 1."""
        used = self._used.get(owner, {})
        most = float(_UNLIMITED)
        for name, amount in signature.needs:
            total = self._total.get(name, 0)
            if total > 0:
                most = min(most, max(0.0, (share * total - used.get(name, 0)) // amount))
        return int(most) + 1

    def allowance(self, owner: str, signature: Signature) -> int:
        """How many such tasks the owner's quota allows."""
        quota = self.quota(owner)
        most = _UNLIMITED if quota.live_tasks is None else quota.live_tasks - self._tasks.get(owner, 0)
        if quota.quantities:
            used = self._used.get(owner, {})
            for name, amount in signature.needs:
                if name in quota.quantities:
                    most = min(most, int((quota.quantities[name] - used.get(name, 0) + EPSILON) // amount))
        return max(0, most)

    def take(self, owner: str, signature: Signature, count: int) -> None:
        self._tasks[owner] = self._tasks.get(owner, 0) + count
        used = self._used.setdefault(owner, {})
        for name, amount in signature.requests:
            used[name] = used.get(name, 0) + amount * count

    def quota(self, owner: str) -> Quota:
        return self._quotas.get(owner) or self._quotas.get(EVERYONE) or _NO_QUOTA
