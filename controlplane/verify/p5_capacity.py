"""P5: the placements on a target never exceed its capacity, unless the target itself shrank.

Every revision that adds a placement is judged. A cycle decides on a snapshot a little older than its commit, so a
placement that does not fit is judged again by the capacity at the revision of the cycle's snapshot, as the cycle's
record names it; without that record, by the largest capacity since the last recorded cycle.
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
from controlplane.verify.history import KeyChange
from controlplane.verify.promise_verdicts import PromiseVerdict, Tally

_EPSILON = 1e-6


@dataclass(slots=True)
class _TargetUse:
    """Use and capacity of a target. `past` holds every capacity with the revision at which it came into force."""

    configured: Mapping[str, Number] = field(default_factory=dict)
    reported: Mapping[str, Number] = field(default_factory=dict)
    used: defaultdict[str, Number] = field(default_factory=lambda: defaultdict(int))
    past: list[tuple[int, dict[str, Number]]] = field(default_factory=list)

    def resize(self, revision: int) -> None:
        """Sets the capacity: of each quantity the smaller of the configured and the reported amount."""
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
    """A placement above the capacity at its own revision."""

    key: str
    revision: int
    target: str
    name: str
    used: Number
    decided_after: int


class CapacityCheck:
    """Adds up placements per target; a placement above the capacity is a doubt until its cycle's record is read."""

    def __init__(self) -> None:
        self._tally = Tally("P5", "nothing was placed")
        self._targets: defaultdict[str, _TargetUse] = defaultdict(_TargetUse)
        self._placed: dict[str, tuple[str, Mapping[str, Number]]] = {}
        self._doubts: defaultdict[tuple[int, int], list[_Doubt]] = defaultdict(list)
        self._last_decided = 0

    def start(self, state: Sequence[KeyChange]) -> None:
        for event in state:
            self._follow(event, 0)

    def change(self, revision: int, changes: Sequence[KeyChange]) -> None:
        added = [event for event in changes if self._follow(event, revision)]
        for event in added:
            self._judge(event)
        for event in changes:
            if isinstance(event.object, Cycle):
                for doubt in self._doubts.pop((event.object.epoch, event.object.n), ()):
                    self._resolve(doubt, event.object.revision, event.object.revision)
                self._last_decided = max(self._last_decided, event.object.revision)

    def verdict(self) -> PromiseVerdict:
        for doubts in self._doubts.values():
            for doubt in doubts:
                self._resolve(doubt, doubt.decided_after, doubt.revision)
        self._doubts.clear()
        return self._tally.verdict()

    def _follow(self, event: KeyChange, revision: int) -> bool:
        """Whether the event added a placement."""
        if event.tree == keys.TARGETS:
            use = self._targets[event.parts[0]]
            use.configured = (event.object.capacity or {}) if isinstance(event.object, Target) else {}
            use.resize(revision)
        elif event.tree == keys.INVENTORY and event.parts[1] == keys.LIVE:
            use = self._targets[event.parts[0]]
            use.reported = event.object.capacity if isinstance(event.object, Live) else {}
            use.resize(revision)
        elif event.tree == keys.DESIRED:
            return self._place(event)
        return False

    def _place(self, event: KeyChange) -> bool:
        target = event.parts[0]
        before = self._placed.pop(event.key, None)
        used = self._targets[target].used
        for name, amount in before[1].items() if before else ():
            used[name] -= amount
        if not isinstance(event.object, Fulfilment):
            return False
        self._placed[event.key] = target, event.object.requests
        for name, amount in event.object.requests.items():
            used[name] += amount
        return before is None

    def _judge(self, event: KeyChange) -> None:
        self._tally.checked += 1
        fulfilment = event.object
        assert isinstance(fulfilment, Fulfilment)
        target = event.parts[0]
        use = self._targets[target]
        for name, amount in fulfilment.requests.items():
            used = use.used[name]
            if amount > 0 and used > use.most(name, event.revision, event.revision) + _EPSILON:
                doubt = _Doubt(event.key, event.revision, target, name, used, self._last_decided)
                self._doubts[fulfilment.epoch, fulfilment.cycle].append(doubt)

    def _resolve(self, doubt: _Doubt, first: int, last: int) -> None:
        most = self._targets[doubt.target].most(doubt.name, first, last)
        if doubt.used > most + _EPSILON:
            why = f"brings {doubt.name} on {doubt.target} to {doubt.used:g} of {most:g}"
            self._tally.broken(doubt.key, doubt.revision, why)
