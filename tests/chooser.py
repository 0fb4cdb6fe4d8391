"""The reference's order of service: whose turn it is, what is kept for whom, and gangs.

Like the rest of the reference it imports `controlplane.model` and plain Python alone.
"""

from __future__ import annotations

import copy
from collections import Counter
from dataclasses import dataclass, field, replace
from itertools import takewhile

from tests.reference import EPSILON, NEARNESS, OF_A_GANG, OF_ROOM, PLENTY, QUANTUM, Group, Place, State


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
            owner = min({group.owner for group in level}, key=lambda name: (self.state.share(name), name))
            mine = sorted((group for group in level if group.owner == owner), key=lambda group: group.rank)
            rivals = {group.owner for group in level} - {owner}
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
        self.drop(first, reason)
        if reason != "OwnerQuota" and not first.job.affinity:
            self.known[first.wish] = reason
        if reason in OF_ROOM and self.reservations > 0:
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

    def drop(self, like: Group, reason: str) -> None:
        """The whole line waits: all of one priority, owner and wish."""
        line = [
            group
            for group in self.waiting
            if not group.gang and (group.priority, group.owner, group.wish) == (like.priority, like.owner, like.wish)
        ]
        for group in line:
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
        """Keeps the target where the least is missing until it is free enough, as far as time limits tell."""
        able = [
            place
            for place in self.state.places
            if not any(self.state.refuses(reason, group, place) for reason in NEARNESS if reason not in OF_ROOM)
            and all(place.capacity.get(name, 0) + EPSILON >= amount for name, amount in group.needs.items())
            and place.kept_until is None
        ]
        if not able:
            return 0
        place = min(able, key=lambda place: missing(group, place))
        place.kept_until = soonest(group, place)
        return 1

    def keep_room_for_gang(self, parts: list[Group]) -> int:
        """Keeps what the gang would use if all other work were over."""
        for order in orders(self.state, parts):
            empty = copy.deepcopy(self.state)
            empty.placed = []
            for place in empty.places:
                place.seems, place.running = place.load(), []
            if all(empty.lay(group, group.count) == group.count for group in order):
                used = {target for _, _, target in empty.placed}
                for place in self.state.places:
                    if place.name in used:
                        place.kept_until = 0.0
                return 1
        return 0


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
    return "GangIncomplete" if reason in OF_A_GANG else reason


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


def soonest(group: Group, place: Place) -> float:
    """When it fits, by the time limits of what runs; now, so that nobody may come between, when they do not tell."""
    over = sorted((one for one in place.running if one.ends_in is not None), key=lambda one: one.ends_in or 0.0)
    then = copy.deepcopy(place)
    for one in over:
        then.running.remove(one)
        room = all(then.free(name) + EPSILON >= amount for name, amount in group.needs.items())
        if room and (then.slots is None or len(then.running) < then.slots):
            return one.ends_in or 0.0
    return 0.0
