"""The reference's order of service: whose turn it is, what is kept for whom, and gangs.

Like the rest of the reference it imports `controlplane.model` and plain Python alone.
"""

from __future__ import annotations

import copy
from collections import Counter
from dataclasses import dataclass, field, replace
from itertools import takewhile

from tests.reference import HELPED_BY_TIME, NEARNESS, PLENTY, QUANTUM, Group, State
from tests.reference_places import EPSILON, Kept, Place


@dataclass
class Chooser:
    state: State
    waiting: list[Group]
    refused: Counter[str] = field(default_factory=Counter)
    known: dict[tuple[object, ...], str] = field(default_factory=dict)
    budget: int = field(init=False)
    reservations: int = field(init=False)

    def __post_init__(self) -> None:
        settings = self.state.settings
        self.budget = settings.cycle_budget
        self.reservations = min(settings.reservations, 1 + len(self.state.places) // 4)

    def choose(self) -> Counter[str]:
        """Serves everybody; the reasons of who was refused. What was placed is in the state."""
        while self.budget > 0 and self.waiting:
            top = max(group.priority for group in self.waiting)
            level = [group for group in self.waiting if group.priority == top]
            owners = {group.owner for group in level}
            owner = min(owners, key=lambda name: (self.state.share(name), first_rank(level, name), name))
            mine = sorted((group for group in level if group.owner == owner), key=lambda group: group.rank)
            rivals = owners - {owner}
            if mine[0].gang:
                self.serve_gang([group for group in mine if group.order == mine[0].order])
            else:
                self.serve(mine, rivals)
        for group in self.waiting:
            self.refused["Queued"] += group.count
        return +self.refused

    def serve(self, mine: list[Group], rivals: set[str]) -> None:
        first = mine[0]
        if first.wish in self.known:
            return self.drop(first, self.known[first.wish])
        run = list(takewhile(lambda group: group.wish == first.wish and not group.gang, mine))
        wanted = min(sum(group.count for group in run), self.budget, self.turn(first, rivals))
        done = self.state.lay(first, min(wanted, self.state.quota(first)))
        self.hand_out(run, done)
        if done == wanted:
            return None
        reason = self.state.reason(first)
        left = sum(group.count for group in self.line(first))
        self.drop(first, reason)
        if reason != "OwnerQuota" and not first.job.affinity:
            self.known[first.wish] = reason
        if reason in HELPED_BY_TIME and self.reservations > 0:
            for _ in range(min(left, max(1, self.reservations // 2))):
                self.reservations -= self.keep_room(first)
        return None

    def turn(self, group: Group, rivals: set[str]) -> int:
        """How many tasks it may place until it is a rival's turn: those that bring its owner above the next share."""
        if not rivals or not group.needs:
            return PLENTY
        bound = min(self.state.share(rival) for rival in rivals) + QUANTUM
        count = 1
        while count < group.count + self.budget and self.state.share(group.owner, [group.job] * count) <= bound:
            count += 1
        return count

    def hand_out(self, run: list[Group], done: int) -> None:
        """The first groups get the places; the state booked them all on the first."""
        self.budget -= done
        start = len(self.state.placed) - done
        for group in run:
            some = min(group.count, done)
            for at in range(start, start + some):
                self.state.placed[at] = (group.order, group.job.name, self.state.placed[at][2])
            start, done = start + some, done - some
            self.replace(group, group.count - some)

    def replace(self, group: Group, left: int) -> None:
        at = self.waiting.index(group)
        self.waiting[at : at + 1] = [replace(group, count=left)] if left else []

    def line(self, like: Group) -> list[Group]:
        """All of one priority, owner and wish."""
        return [
            group
            for group in self.waiting
            if not group.gang and (group.priority, group.owner, group.wish) == (like.priority, like.owner, like.wish)
        ]

    def drop(self, like: Group, reason: str) -> None:
        """The whole line waits."""
        for group in self.line(like):
            self.refused[reason] += group.count
            self.waiting.remove(group)

    def serve_gang(self, parts: list[Group]) -> None:
        tasks = sum(group.count for group in parts)
        if tasks > self.budget and self.state.placed:
            self.budget = 0
            return
        for group in parts:
            self.waiting.remove(group)
        reason = whole(self.state, parts)
        if reason is None:
            self.budget -= tasks
            return
        self.refused[reason] += tasks
        if reason == "GangIncomplete" and self.reservations > 0:
            self.reservations -= self.keep_room_for_gang(parts)

    def keep_room(self, group: Group) -> int:
        """Keeps room for one task on the target that has it the soonest, as far as time limits tell; how many."""
        able = [
            (when, missing(group, place), position)
            for position, place in enumerate(self.state.places)
            if not any(self.state.refuses(reason, group, place) for reason in NEARNESS if reason not in HELPED_BY_TIME)
            and all(place.capacity.get(name, 0) + EPSILON >= amount for name, amount in group.needs.items())
            and place.kept is None
            and (when := soonest(self.state, group, place)) is not None
        ]
        if not able:
            return 0
        until, _, position = min(able)
        place = self.state.places[position]
        then = at_moment(place, until)
        place.kept = Kept(
            until=until,
            spare={name: then.free(name) - amount for name, amount in group.needs.items()},
            slots=None if then.slots is None else then.slots - len(then.running) - 1,
            whom=[(group.job, group.order)],
        )
        return 1

    def keep_room_for_gang(self, parts: list[Group]) -> int:
        """Keeps what the gang uses at the first moment at which it goes in; how many such gangs."""
        ends = {one.ends_in for place in self.state.places for one in place.running if one.ends_in is not None}
        moments = sorted({0.0, *ends})
        if gang_at(self.state, parts, moments[-1]) is None:
            return 0
        low, high = 0, len(moments) - 1
        while low < high:
            middle = (low + high) // 2
            if gang_at(self.state, parts, moments[middle]) is not None:
                high = middle
            else:
                low = middle + 1
        then = gang_at(self.state, parts, moments[low])
        assert then is not None
        used = {target for _, _, target in then.placed}
        for place, later in zip(self.state.places, then.places, strict=True):
            if place.name in used:
                laid = [group for group in parts if (group.order, group.job.name, place.name) in then.placed]
                place.kept = both(place.kept, kept_for(laid, later, moments[low]))
        return 1


def first_rank(level: list[Group], owner: str) -> tuple[str, str, str, int]:
    return min(group.rank for group in level if group.owner == owner)


def at_moment(place: Place, moment: float) -> Place:
    """The place when everything is gone that is known to be over by then."""
    over = [one for one in place.running if one.ends_in is not None and one.ends_in <= moment]
    left = [one for one in place.running if one.ends_in is None or one.ends_in > moment]
    return replace(place, running=left, over=over)


def soonest(state: State, group: Group, place: Place) -> float | None:
    """When such a task fits there, in seconds from now; None when nobody knows."""
    for moment in sorted({0.0, *(one.ends_in for one in place.running if one.ends_in is not None)}):
        then = at_moment(place, moment)
        if not any(state.refuses(reason, group, then) for reason in HELPED_BY_TIME):
            return moment
    return None


def gang_at(state: State, parts: list[Group], moment: float) -> State | None:
    """The state with the whole gang laid, when everything is gone that is over by then; None when it does not go in.

    Nobody asks again for quotas. A unique resource that somebody holds stays held: a gang of two holders never goes in.
    """
    for order in orders(state, parts):
        then = copy.deepcopy(state)
        then.places = [at_moment(place, moment) for place in then.places]
        then.placed = []
        if all(then.lay(group, group.count) == group.count for group in order):
            return then
    return None


def kept_for(laid: list[Group], later: Place, until: float) -> Kept:
    """The room that groups of a gang use there, and what they leave."""
    return Kept(
        until=until,
        spare={name: later.free(name) for group in laid for name in group.needs},
        slots=None if later.slots is None else later.slots - len(later.running),
        whom=[(group.job, group.order) for group in laid],
    )


def both(known: Kept | None, more: Kept) -> Kept:
    """Room that is kept for several, so that all of them find theirs."""
    if known is None:
        return more
    names = known.spare.keys() | more.spare.keys()
    slots = [some for some in (known.slots, more.slots) if some is not None]
    return Kept(
        until=min(known.until, more.until),
        spare={name: min(one.spare[name] for one in (known, more) if name in one.spare) for name in names},
        slots=min(slots, default=None),
        whom=known.whom + more.whom,
    )


def whole(state: State, parts: list[Group]) -> str | None:
    """Places all of a gang, or nothing of it; why not."""
    reason = None
    for order in orders(state, parts):
        trial = copy.deepcopy(state)
        refused = next((why for group in order if (why := part_of(trial, group)) is not None), None)
        if refused is None:
            state.__dict__.update(trial.__dict__)
            return None
        reason = reason or refused
    return reason


def part_of(trial: State, group: Group) -> str | None:
    if trial.lay(group, min(group.count, trial.quota(group))) == group.count:
        return None
    reason = trial.reason(group)
    return "GangIncomplete" if reason in HELPED_BY_TIME else reason


def orders(state: State, parts: list[Group]) -> list[list[Group]]:
    """In which a gang is tried: as named; then the large parts first, and those last that look for company."""

    def size(group: Group) -> float:
        most = {name: max(place.capacity.get(name, 0) for place in state.places) for name in group.needs}
        return max((amount / most[name] for name, amount in group.needs.items() if most[name]), default=0.0)

    again = sorted(parts, key=lambda group: (bool(group.job.affinity), -size(group))) if state.places else parts
    return [parts] if again == parts else [parts, again]


def missing(group: Group, place: Place) -> float:
    """Of all quantities the largest part of the target that has to become free."""
    full = place.slots is not None and len(place.running) >= place.slots
    parts = [(amount - place.free(name)) / place.capacity[name] for name, amount in group.needs.items()]
    return max([EPSILON if full else 0.0, *parts])
