"""P4: a unique resource has at most one holder at every revision, and holders do not overlap in reality.

At every revision the claim of a resource names the fulfilment that holds the resource, and a claim is deleted before
another fulfilment gets the resource. In reality an interval runs from "started" to "ended" in the joblets' records, on
the monotonic clock of one boot. The records may miss the end of a pod, which has no process here: see `p4_lost`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence

from controlplane.model.fulfilment import Claim, Fulfilment
from controlplane.store import keys
from controlplane.verify.history import KeyChange
from controlplane.verify.joblet_records import JobletRecord
from controlplane.verify.p4_lost import LostHolders
from controlplane.verify.promise_verdicts import PromiseVerdict, Tally

Run = tuple[str, str, int, int]


class ExclusiveCheck:
    """Follows claims and holders through history, then compares the intervals of the joblets' records."""

    def __init__(self) -> None:
        self.tally = Tally("P4", "no unique resource was claimed")
        self._lost = LostHolders(self.tally)
        self._claims: dict[str, str] = {}
        self._holds: dict[str, tuple[str, ...]] = {}
        self._holders: defaultdict[str, set[str]] = defaultdict(set)
        self._begun: dict[tuple[str, Run], JobletRecord] = {}
        self._intervals: defaultdict[tuple[str, str], list[tuple[float, float, JobletRecord]]] = defaultdict(list)
        self._touched: set[str] = set()
        self._revision = 0

    def start(self, state: Sequence[KeyChange]) -> None:
        """Follows without judging: a piece of the state may miss the claim of a holder."""
        self._lost.follow(state)
        for event in state:
            self._follow(event)
            self._revision = max(self._revision, event.revision)

    def change(self, revision: int, changes: Sequence[KeyChange]) -> None:
        self._judge()
        self._revision = revision
        self._lost.change(changes)
        for event in changes:
            self._follow(event)
        self._judge()

    def verdict(self, note: str = "") -> PromiseVerdict:
        self._judge()
        return self.tally.verdict(note)

    def _follow(self, event: KeyChange) -> None:
        if event.tree == keys.CLAIMS:
            self._claim(event)
        elif event.tree == keys.DESIRED:
            held = self._holds.pop(event.parts[1], ())
            for name in held:
                self._holders[name].discard(event.parts[1])
            self._touched.update(held)
            if isinstance(event.object, Fulfilment) and event.object.holds:
                self._holds[event.object.id] = event.object.holds
                for name in event.object.holds:
                    self._holders[name].add(event.object.id)
                self._touched.update(event.object.holds)

    def _claim(self, event: KeyChange) -> None:
        name = event.parts[0]
        self._touched.add(name)
        before = self._claims.pop(name, None)
        if not isinstance(event.object, Claim):
            return
        self._claims[name] = event.object.fulfilment
        if before is not None and before != event.object.fulfilment:
            why = f"passed from fulfilment {before} to {event.object.fulfilment} without having been released"
            self.tally.broken(event.key, event.revision, why)

    def _judge(self) -> None:
        for name in self._touched:
            self.tally.checked += 1
            holders, claimed = self._holders[name], self._claims.get(name)
            if len(holders) > 1:
                why = f"is held by {len(holders)} fulfilments: {', '.join(sorted(holders))}"
                self.tally.broken(keys.claim(name), self._revision, why)
            for holder in sorted(holders - {claimed}):
                why = f"is held by fulfilment {holder}, but " + (f"claimed by {claimed}" if claimed else "not claimed")
                self.tally.broken(keys.claim(name), self._revision, why)
            if not holders:
                del self._holders[name]
        self._touched.clear()

    # The processes that ran, by the joblets' records.

    def record(self, record: JobletRecord) -> None:
        """Adds a line of a joblet's records. Lines of the same joblet must come in their order."""
        if not record.holds:
            return
        place = (record.target, record.run)
        if record.event == "started":
            self._begun.setdefault(place, record)
        elif record.event == "ended" and (begun := self._begun.pop(place, None)) is not None:
            self._interval(begun, record.monotonic if begun.boot == record.boot else begun.monotonic)

    def records_end(self, lives: Callable[[JobletRecord], bool], now: float) -> str:
        """Judges the records; `lives` tells whether a record's process runs now. Returns a note for people."""
        unended = []
        for record in self._begun.values():
            if lives(record):
                self._interval(record, now)
            else:
                # The end is unknown, but the process existed at its start.
                self._interval(record, record.monotonic)
                if record.pid:
                    unended.append(record)
        for (name, _), intervals in self._intervals.items():
            self._overlaps(name, sorted(intervals, key=lambda interval: interval[:2]))
        followed = sum(self._is_followed(record) for record in unended)
        if followed:
            self.tally.cannot_tell(
                f"{followed} holders died without a record of their end, and others held the same later"
            )
        alone = len(unended) - followed
        return f"{alone} holders died without a record of their end, and nobody held the same later" if alone else ""

    def _is_followed(self, record: JobletRecord) -> bool:
        """Whether another holder of the same resource started later, so that the two may have overlapped."""
        later = (other for name in record.holds for _, _, other in self._intervals[name, record.boot])
        return any(other.run != record.run and other.monotonic > record.monotonic for other in later)

    def _interval(self, begun: JobletRecord, end: float) -> None:
        for name in begun.holds:
            self._intervals[name, begun.boot].append((begun.monotonic, end, begun))

    def _overlaps(self, name: str, intervals: Sequence[tuple[float, float, JobletRecord]]) -> None:
        until, last = 0.0, None
        for start, end, record in intervals:
            self.tally.checked += 1
            if last is not None and start < until and record.run != last.run:
                why = f"fulfilment {record.fulfilment} on {record.target} ran {until - start:.3f} s beside "
                self.tally.broken(keys.claim(name), 0, why + f"fulfilment {last.fulfilment} on {last.target}")
            if end > until:
                until, last = end, record
