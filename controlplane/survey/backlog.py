"""The backlog: which jobs of which orders wait, queued by priority, owner and signature, in order of rank.

The backlog follows the ledgers; all state of the backlog can be derived from the ledgers of a moment, by a new leader
or for a question about the past.
"""

from __future__ import annotations

import heapq
from bisect import bisect_left, insort
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from controlplane.cache.ledger import OrderLedger
from controlplane.cache.ledgers import Ledgers
from controlplane.cache.placement_hint import PlacementHint
from controlplane.engine.ready_groups import next_time, rank_of, ready_groups
from controlplane.engine.rules.book import Book
from controlplane.engine.rules.facts import Facts
from controlplane.engine.service import Group, Queue, Rank
from controlplane.engine.signature import Signature, signature_of
from controlplane.model import times
from controlplane.model.isolation import Bystander, Ward
from controlplane.model.order import ResolvedJob

# (priority, owner, signature), and the order for a gang, since a gang has a queue of its own.
Place = tuple[int, str, Signature, str]
Member = tuple[Rank, str]
_MOST_SIGNATURES = 50_000
_MANY = 1000


@dataclass(slots=True)
class _Line:
    """A queue: the members in order of rank, and how many tasks each member holds; of a gang also the signatures.

    Members leave at the front, most of the time: the first `gone` members of the list have left, and are cut off when
    they are half of the list, since each cut moves all remaining members.
    """

    members: list[Member] = field(default_factory=list)
    counts: dict[Member, int] = field(default_factory=dict)
    parts: dict[Member, Signature] = field(default_factory=dict)
    tasks: int = 0
    gone: int = 0

    def set(self, member: Member, count: int) -> None:
        before = self.counts.get(member, 0)
        self.tasks += count - before
        if count and not before:
            if not self.members or self.members[-1] < member:
                # A new member is the last in rank, most of the time.
                self.members.append(member)
            else:
                insort(self.members, member, self.gone)
        elif before and not count:
            self._remove(member)
        if count:
            self.counts[member] = count
        else:
            self.counts.pop(member, None)

    def _remove(self, member: Member) -> None:
        at = bisect_left(self.members, member, self.gone)
        if at > self.gone:
            del self.members[at]
            return
        self.gone += 1
        if 2 * self.gone >= len(self.members):
            del self.members[: self.gone]
            self.gone = 0

    def waiting(self) -> Iterator[Member]:
        """The members in order of rank."""
        return (self.members[at] for at in range(self.gone, len(self.members)))

    def groups(self) -> Iterator[Group]:
        return (Group(rank, job, self.counts[(rank, job)]) for rank, job in self.waiting())


class Backlog:
    def __init__(self, ledgers: Ledgers, ward: Ward | None = None) -> None:
        """Orders held by the ward are left out of the backlog, and errors of an order are reported to the ward."""
        self._ledgers = ledgers
        self._ward: Ward = ward or Bystander()
        # Orders left out of the backlog because they raised or are held by the ward.
        self._left_out: set[str] = set()
        self._lines: dict[Place, _Line] = {}
        self._places: dict[str, Sequence[tuple[Member, Place]]] = {}
        self._signatures: dict[tuple[object, ...], Signature] = {}
        self._book = Book.of(())
        # The moment of the last update.
        self._moment = ""
        # When each order is looked at again by time alone; and these times in a heap, outdated entries included.
        self._due: dict[str, str] = {}
        self._moments: list[tuple[str, str]] = []
        self._apart: set[str] = set()
        self._preempting: set[str] = set()

    @property
    def apart(self) -> frozenset[str]:
        """Waiting orders which keep their tasks on different targets."""
        return frozenset(self._apart)

    @property
    def preempting(self) -> bool:
        return bool(self._preempting)

    def report_to(self, ward: Ward) -> frozenset[str]:
        """Replaces the ward from now on; the orders left out under the earlier ward, which are to be looked at
        again."""
        self._ward = ward
        return frozenset(self._left_out)

    def turn_to(self, now: datetime, book: Book) -> frozenset[str]:
        """Sets the rules and the moment from now on; the orders to be looked at again because of the change.

        All orders are returned when the rules changed, when the rules read the time and a new minute began, or when the
        clock was set back.
        """
        moment = times.show(now)
        minute = book.reads_now and moment[:16] != self._moment[:16]
        everything = book is not self._book or minute or moment < self._moment
        self._book, self._moment = book, moment
        return frozenset((*self._places, *self._ledgers.orders)) if everything else frozenset()

    def update(self, orders: Iterable[str], now: datetime, book: Book) -> bool:
        """Looks at these orders again, and at orders whose time has come; True when the waiting tasks may have
        changed."""
        again = {*orders, *self.turn_to(now, book), *self._come(self._moment)}
        changed = False
        # Sorted, so that a large backlog is entered from end to end and not all over the place.
        for identity in sorted(again) if len(again) > 1 else again:
            try:
                changed = self._look_again(identity, now, self._moment) or changed
            except Exception as error:  # noqa: BLE001 - supervision: the other orders wait on
                changed = True
                self.leave_out((identity,))
                self._ward.failed("Order", identity, error)
        return changed

    def _look_again(self, identity: str, now: datetime, moment: str) -> bool:
        self._left_out.discard(identity)
        ledger = self._ledgers.orders.get(identity)
        wants = ledger if ledger is not None and ledger.wants_room() else None
        if wants is not None and self._ward.holds("Order", identity):
            wants = None
            self._left_out.add(identity)
        if wants is None and identity not in self._places:
            return False
        self._forget(identity)
        if wants is not None:
            self._enter(wants, now, moment)
        else:
            self._due.pop(identity, None)
        return True

    def leave_out(self, orders: Iterable[str]) -> None:
        """Removes these orders from the backlog until they are looked at again."""
        for identity in orders:
            self._forget(identity)
            self._left_out.add(identity)

    def next_time(self) -> str | None:
        """The next moment at which an order is to be looked at by time alone."""
        while self._moments and not self._counts(self._moments[0]):
            heapq.heappop(self._moments)
        return self._moments[0][0] if self._moments else None

    def waits(self) -> bool:
        """Whether any task may be placed."""
        return any(line.tasks for line in self._lines.values())

    def queues(self) -> list[Queue]:
        return [
            Queue(
                priority=priority,
                owner=owner,
                signature=signature,
                groups=line.groups(),
                tasks=line.tasks,
                parts=tuple(line.parts[member] for member in line.waiting()) if gang else (),
            )
            for (priority, owner, signature, gang), line in self._lines.items()
            if line.tasks
        ]

    def _come(self, moment: str) -> Iterator[str]:
        while self._moments and self._moments[0][0] <= moment:
            entry = heapq.heappop(self._moments)
            if self._counts(entry):
                del self._due[entry[1]]
                yield entry[1]

    def _counts(self, entry: tuple[str, str]) -> bool:
        return self._due.get(entry[1]) == entry[0]

    def _look_again_at(self, moment: str, identity: str) -> None:
        if self._due.get(identity) == moment:
            return
        self._due[identity] = moment
        if len(self._moments) > 2 * len(self._due) + _MANY:
            self._moments = [(when, name) for name, when in self._due.items() if name != identity]
            heapq.heapify(self._moments)
        heapq.heappush(self._moments, (moment, identity))

    def _forget(self, identity: str) -> None:
        self._apart.discard(identity)
        self._preempting.discard(identity)
        for member, place in self._places.pop(identity, ()):
            line = self._lines[place]
            line.set(member, 0)
            if not line.members:
                del self._lines[place]

    def _enter(self, ledger: OrderLedger, now: datetime, moment: str) -> None:
        identity = ledger.order.id
        # Registered first: when an error is raised below, `_forget` still finds the members entered by then.
        entered: list[tuple[Member, Place]] = []
        self._places[identity] = entered
        following = next_time(ledger, moment)
        if following is not None:
            self._look_again_at(following, identity)
        else:
            self._due.pop(identity, None)
        gang: Place | None = None
        for position, resolved, hint, ready in ready_groups(ledger, moment):
            facts = self._book.facts(ledger.order, resolved.job)
            signature = self._signature(ledger, resolved, facts, hint)
            priority = self._book.priority_of(facts, ledger.order.priority, now)
            place = (priority, ledger.order.owner, signature, identity if ledger.resolved.gang else "")
            if ledger.resolved.gang:
                gang = place = gang or place
            member = (rank_of(ledger, position), resolved.job.name)
            line = self._lines.get(place)
            if line is None:
                line = self._lines[place] = _Line()
            line.set(member, ready)
            entered.append((member, place))
            if gang is not None:
                line.parts[member] = signature
            if signature.spread:
                self._apart.add(identity)
        # Kept for every waiting order, so as a tuple, which is small.
        self._places[identity] = tuple(entered)
        if ledger.order.preempts:
            self._preempting.add(identity)

    def _signature(self, ledger: OrderLedger, resolved: ResolvedJob, facts: Facts, hint: PlacementHint) -> Signature:
        order, job = ledger.order, resolved.job
        apart = order.id if job.spread == "order" else ""
        more = tuple(resource.name for resource in order.resources if resource.unique) if order.resources else ()
        if ledger.resolved.pack > 1:
            apart = order.id
        key = (order.resolved_digest, job.name, order.target_policy, order.preempts, apart, facts, hint, more)
        found = self._signatures.get(key)
        if found is None:
            if len(self._signatures) > _MOST_SIGNATURES:
                self._signatures.clear()
            found = self._signatures[key] = signature_of(ledger, job, facts, hint)
        return found
