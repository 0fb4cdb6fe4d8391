"""The backlog: which jobs of which orders wait, queued by priority and signature, oldest first.

Follows the ledgers; holds no state of its own that a new leader would miss.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from controlplane.cache.ledger import OrderLedger
from controlplane.cache.ledgers import Ledgers
from controlplane.engine.decide import Group, Queue
from controlplane.engine.world import Signature, signature_of

Place = tuple[int, Signature]
Member = tuple[str, str]


@dataclass(slots=True)
class _Line:
    """One queue: its members in order of age, and how many tasks each holds."""

    members: list[Member] = field(default_factory=list)
    counts: dict[Member, int] = field(default_factory=dict)
    tasks: int = 0

    def set(self, member: Member, count: int) -> None:
        before = self.counts.get(member, 0)
        self.tasks += count - before
        if count and not before:
            insort(self.members, member)
        elif before and not count:
            del self.members[bisect_left(self.members, member)]
        if count:
            self.counts[member] = count
        else:
            self.counts.pop(member, None)

    def groups(self) -> Iterator[Group]:
        return (Group(order, job, self.counts[(order, job)]) for order, job in self.members)


class Backlog:
    def __init__(self, ledgers: Ledgers) -> None:
        self._ledgers = ledgers
        self._lines: dict[Place, _Line] = {}
        self._places: dict[str, dict[str, Place]] = {}
        self._signatures: dict[tuple[str, str, str | None], Signature] = {}

    def update(self, orders: Iterable[str], now: str) -> bool:
        """Looks at these orders again; True when something that waits may have changed."""
        changed = False
        for identity in orders:
            ledger = self._ledgers.orders.get(identity)
            wants = ledger if ledger is not None and ledger.wants_room() else None
            if wants is None and identity not in self._places:
                continue
            changed = True
            self._forget(identity)
            if wants is not None:
                self._enter(wants, now)
        return changed

    def queues(self) -> list[Queue]:
        return [
            Queue(priority, signature, line.groups(), line.tasks)
            for (priority, signature), line in self._lines.items()
            if line.tasks
        ]

    def _forget(self, identity: str) -> None:
        for job, place in self._places.pop(identity, {}).items():
            line = self._lines[place]
            line.set((identity, job), 0)
            if not line.members:
                del self._lines[place]

    def _enter(self, ledger: OrderLedger, now: str) -> None:
        identity = ledger.order.id
        places: dict[str, Place] = {}
        for resolved in ledger.resolved.jobs:
            name = resolved.job.name
            ready = ledger.jobs[name].ready(now)
            if ready <= 0:
                continue
            place = (ledger.order.priority, self._signature(ledger, name))
            self._lines.setdefault(place, _Line()).set((identity, name), ready)
            places[name] = place
        self._places[identity] = places

    def _signature(self, ledger: OrderLedger, name: str) -> Signature:
        key = (ledger.order.resolved_digest, name, ledger.order.target_policy)
        found = self._signatures.get(key)
        if found is None:
            job = next(resolved.job for resolved in ledger.resolved.jobs if resolved.job.name == name)
            if len(self._signatures) > 50_000:
                self._signatures.clear()
            found = self._signatures[key] = signature_of(ledger, job)
        return found
