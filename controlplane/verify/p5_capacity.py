"""P5: what is placed on a target never exceeds its capacity, unless the target itself shrank.

Judged at every revision that adds a placement. A cycle decides on a picture that is a little older than its commit, so
a placement that does not fit is judged again by the capacity at the revision its cycle was decided on, which the
cycle's record names; without that record, by the largest capacity since the last recorded cycle.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from controlplane.model.fulfilment import Fulfilment
from controlplane.model.leadership import Cycle
from controlplane.model.quantity import Number
from controlplane.model.target import Live, Target
from controlplane.store import keys
from controlplane.verify.history import Event
from controlplane.verify.verdict import Tally, Verdict

_EPSILON = 1e-6


@dataclass(slots=True)
class _Place:
    """One target. `past` holds every capacity it had, with the revision from which on."""

    configured: Mapping[str, Number] = field(default_factory=dict)
    reported: Mapping[str, Number] = field(default_factory=dict)
    used: defaultdict[str, Number] = field(default_factory=lambda: defaultdict(int))
    past: list[tuple[int, dict[str, Number]]] = field(default_factory=list)

    def resize(self, revision: int) -> None:
        """Of each quantity the smaller of what is configured and what is reported."""
        now = dict(self.configured)
        for name, amount in self.reported.items():
            now[name] = min(amount, now.get(name, amount))
        if not self.past or self.past[-1][1] != now:
            self.past.append((revision, now))

    def most(self, name: str, first: int, last: int) -> Number:
        """The largest capacity that was in force at some revision from `first` to `last`."""
        best: Number = 0
        for at, (since, capacity) in enumerate(self.past):
            until = self.past[at + 1][0] - 1 if at + 1 < len(self.past) else last
            if since <= last and until >= first:
                best = max(best, capacity.get(name, 0))
        return best


@dataclass(frozen=True, slots=True)
class _Doubt:
    key: str
    revision: int
    target: str
    name: str
    used: Number
    decided_after: int


class Capacity:
    def __init__(self) -> None:
        self._tally = Tally("P5", "nothing was placed")
        self._places: defaultdict[str, _Place] = defaultdict(_Place)
        self._placed: dict[str, tuple[str, Mapping[str, Number]]] = {}
        self._doubts: defaultdict[tuple[int, int], list[_Doubt]] = defaultdict(list)
        self._last_decided = 0

    def start(self, state: Sequence[Event]) -> None:
        for event in state:
            self._follow(event, 0)

    def change(self, revision: int, changes: Sequence[Event]) -> None:
        added = [event for event in changes if self._follow(event, revision)]
        for event in added:
            self._judge(event)
        for event in changes:
            if isinstance(event.object, Cycle):
                for doubt in self._doubts.pop((event.object.epoch, event.object.n), ()):
                    self._resolve(doubt, event.object.revision, event.object.revision)
                self._last_decided = max(self._last_decided, event.object.revision)

    def verdict(self) -> Verdict:
        for doubts in self._doubts.values():
            for doubt in doubts:
                self._resolve(doubt, doubt.decided_after, doubt.revision)
        self._doubts.clear()
        return self._tally.verdict()

    def _follow(self, event: Event, revision: int) -> bool:
        """Whether the event added a placement."""
        if event.tree == "config/targets":
            place = self._places[event.parts[0]]
            place.configured = (event.object.capacity or {}) if isinstance(event.object, Target) else {}
            place.resize(revision)
        elif event.tree == "inventory" and event.parts[1] == keys.LIVE:
            place = self._places[event.parts[0]]
            place.reported = event.object.capacity if isinstance(event.object, Live) else {}
            place.resize(revision)
        elif event.tree == "desired":
            return self._place(event)
        return False

    def _place(self, event: Event) -> bool:
        target = event.parts[0]
        before = self._placed.pop(event.key, None)
        used = self._places[target].used
        for name, amount in before[1].items() if before else ():
            used[name] -= amount
        if not isinstance(event.object, Fulfilment):
            return False
        self._placed[event.key] = target, event.object.requests
        for name, amount in event.object.requests.items():
            used[name] += amount
        return before is None

    def _judge(self, event: Event) -> None:
        self._tally.checked += 1
        fulfilment = event.object
        assert isinstance(fulfilment, Fulfilment)
        target = event.parts[0]
        place = self._places[target]
        for name, amount in fulfilment.requests.items():
            used = place.used[name]
            if amount > 0 and used > place.most(name, event.revision, event.revision) + _EPSILON:
                doubt = _Doubt(event.key, event.revision, target, name, used, self._last_decided)
                self._doubts[fulfilment.epoch, fulfilment.cycle].append(doubt)

    def _resolve(self, doubt: _Doubt, first: int, last: int) -> None:
        most = self._places[doubt.target].most(doubt.name, first, last)
        if doubt.used > most + _EPSILON:
            why = f"brings {doubt.name} on {doubt.target} to {doubt.used:g} of {most:g}"
            self._tally.broken(doubt.key, doubt.revision, why)
