"""The backlog: which jobs of which orders wait, queued by priority, owner and signature, in order of rank.

Follows the ledgers; holds no state of its own that a new leader, or who asks about a past moment, would miss.
"""

from __future__ import annotations

import heapq
from bisect import bisect_left, insort
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from controlplane.cache.detour import STRAIGHT, Detour
from controlplane.cache.ledger import OrderLedger
from controlplane.cache.ledgers import Ledgers
from controlplane.engine.rules.book import Book
from controlplane.engine.rules.facts import Facts
from controlplane.engine.service import NO_DEADLINE, Group, Queue, Rank
from controlplane.engine.signature import Signature, signature_of
from controlplane.model import deadline, times
from controlplane.model.isolation import Bystander, Ward
from controlplane.model.order import ResolvedJob

# (priority, owner, signature), and the order for a gang, which queues alone.
Place = tuple[int, str, Signature, str]
Member = tuple[Rank, str]
_MOST_SIGNATURES = 50_000
_MANY = 1000
# Moments are written in milliseconds.
_LEAST = timedelta(milliseconds=1)


@dataclass(slots=True)
class _Line:
    """One queue: its members in order of rank, and how many tasks each holds; of a gang also their signatures.

    Members leave at the front, most of the time: the first `gone` of the list have left, and are cut off when they are
    half of it, since each cut moves all that stay.
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
                # What comes last is the last in line, most of the time.
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
        """Orders that the ward holds do not wait here, and what raises for an order is reported there."""
        self._ledgers = ledgers
        self._ward: Ward = ward or Bystander()
        # Orders that would wait here, had they not raised or been held by the ward.
        self._left_out: set[str] = set()
        self._lines: dict[Place, _Line] = {}
        self._places: dict[str, Sequence[tuple[Member, Place]]] = {}
        self._signatures: dict[tuple[object, ...], Signature] = {}
        self._book = Book.of(())
        # The moment of the last update.
        self._moment = ""
        # When each order is looked at again by time alone; and those times in a heap, with what no longer counts.
        self._due: dict[str, str] = {}
        self._moments: list[tuple[str, str]] = []
        self._apart: set[str] = set()
        self._preempting: set[str] = set()

    @property
    def apart(self) -> frozenset[str]:
        """Waiting orders that keep their tasks on different targets."""
        return frozenset(self._apart)

    @property
    def preempting(self) -> bool:
        return bool(self._preempting)

    def report_to(self, ward: Ward) -> frozenset[str]:
        """From now on that ward counts; the orders that were left out for another one, which are to be looked at."""
        self._ward = ward
        return frozenset(self._left_out)

    def turn_to(self, now: datetime, book: Book) -> frozenset[str]:
        """From now on these rules and that moment count; the orders that are to be looked at again for that.

        These are all orders when the rules changed or read the time, or when the clock was set back.
        """
        moment = times.show(now)
        minute = book.reads_now and moment[:16] != self._moment[:16]
        everything = book is not self._book or minute or moment < self._moment
        self._book, self._moment = book, moment
        return frozenset((*self._places, *self._ledgers.orders)) if everything else frozenset()

    def update(self, orders: Iterable[str], now: datetime, book: Book) -> bool:
        """Looks at these orders again, and at those whose time has come; True when what waits may have changed."""
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
        """Lets these orders wait here no longer, until they are looked at again."""
        for identity in orders:
            self._forget(identity)
            self._left_out.add(identity)

    def suppose(self, ledger: OrderLedger, now: datetime) -> None:
        """Lets an order wait that nobody submitted."""
        self._enter(ledger, now, times.show(now))

    def next_time(self) -> str | None:
        """When the time of a waiting order comes."""
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
        # Whatever raises below, what was entered by then can be forgotten again.
        entered: list[tuple[Member, Place]] = []
        self._places[identity] = entered
        following = next_time(ledger, moment)
        if following is not None:
            self._look_again_at(following, identity)
        else:
            self._due.pop(identity, None)
        gang: Place | None = None
        for position, resolved, detour, ready in groups_of(ledger, moment):
            facts = self._book.facts(ledger.order, resolved.job)
            signature = self._signature(ledger, resolved, facts, detour)
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
        # There is one for every order that waits: a tuple is small.
        self._places[identity] = tuple(entered)
        if ledger.order.preempts:
            self._preempting.add(identity)

    def _signature(self, ledger: OrderLedger, resolved: ResolvedJob, facts: Facts, detour: Detour) -> Signature:
        order, job = ledger.order, resolved.job
        apart = order.id if job.spread == "order" else ""
        more = tuple(resource.name for resource in order.resources if resource.unique) if order.resources else ()
        if ledger.resolved.pack > 1:
            apart = order.id
        key = (order.resolved_digest, job.name, order.target_policy, order.preempts, apart, facts, detour, more)
        found = self._signatures.get(key)
        if found is None:
            if len(self._signatures) > _MOST_SIGNATURES:
                self._signatures.clear()
            found = self._signatures[key] = signature_of(ledger, job, facts, detour)
        return found


def groups_of(ledger: OrderLedger, moment: str) -> Iterator[tuple[int, ResolvedJob, Detour, int]]:
    """What may be placed, by group: position, job, detour, number of tasks. Those that take a detour come last.

    What would not make the deadline is left to fail.
    """
    apart: list[tuple[ResolvedJob, Detour, int]] = []
    for position, resolved in enumerate(ledger.resolved.jobs):
        name = resolved.job.name
        ready = 0 if deadline.is_late(ledger.order, resolved.job, moment) else ledger.ready(name, moment)
        if ready > 0 and ledger.jobs[name].detours:
            (_, ready), *others = ledger.jobs[name].parts(moment)
            apart.extend((resolved, detour, count) for detour, count in others)
        if ready > 0:
            yield position, resolved, STRAIGHT, ready
    for position, (resolved, detour, count) in enumerate(apart, len(ledger.resolved.jobs)):
        yield position, resolved, detour, count


def next_time(ledger: OrderLedger, moment: str) -> str | None:
    """The next moment at which time alone changes what may be placed of the order: a time to begin at, the end of a
    back-off, or a deadline that can no longer be made."""
    following = ledger.next_time(moment)
    if ledger.order.deadline is not None:
        latest = (deadline.latest_start(ledger.order, resolved.job) for resolved in ledger.resolved.jobs)
        late = (_just_after(start) for start in latest if start is not None and start >= moment)
        following = min((one for one in (following, *late) if one is not None), default=None)
    if following is not None:
        times.parse(following, "time of the order")
    return following


def _just_after(moment: str) -> str | None:
    """The next moment that can be written; None at the end of the calendar."""
    try:
        return times.show(times.parse(moment, "moment") + _LEAST)
    except OverflowError:
        return None


def rank_of(ledger: OrderLedger, position: int) -> Rank:
    order = ledger.order
    return (deadline_of(order.created, order.deadline), order.created, order.id, position)


def deadline_of(created: str, seconds: float | None) -> str:
    """The moment of the deadline; sorts after all others when there is none."""
    if seconds is None:
        return NO_DEADLINE
    try:
        return times.show(times.parse(created, "created") + timedelta(seconds=float(seconds)))
    except OverflowError:
        return NO_DEADLINE
