"""The part of P4 about targets that nobody could ask: a claim goes from a lost cluster only when its holder is over.

Where nothing kills holders (`silence.kills_holders`) an attempt that ended as TargetLost must never have been reported,
or a person must have said that it is over, or it ran, had a time limit, and that has passed since the target failed, by
the clock of the leader that recorded both.
"""

from __future__ import annotations

from collections.abc import Sequence

from controlplane.model import silence, times
from controlplane.model.errors import Invalid
from controlplane.model.fulfilment import Ended, Fulfilment, Observed
from controlplane.model.order import Order
from controlplane.model.target import TargetStatus
from controlplane.store import keys
from controlplane.verify.history import Event
from controlplane.verify.verdict import Tally

_LOST = "TargetLost"
Attempt = tuple[str, str, int, int]


class LostHolders:
    def __init__(self, tally: Tally) -> None:
        self._tally = tally
        self._targets: dict[str, TargetStatus] = {}
        self._holders: dict[str, Fulfilment] = {}
        self._reports: dict[str, Observed | None] = {}
        self._words: set[Attempt] = set()

    def change(self, changes: Sequence[Event]) -> None:
        # An end is judged by what was there before its transaction.
        for event in changes:
            if event.tree == "status/ended" and isinstance(event.object, Ended):
                self._end(event, event.object)
        self.follow(changes)

    def follow(self, events: Sequence[Event]) -> None:
        for event in events:
            found = event.object
            if isinstance(found, TargetStatus):
                self._targets[found.target] = found
            elif isinstance(found, Order):
                self._words.update((found.id, one.job, one.index, one.attempt) for one in found.stopped)
            elif event.tree == "desired":
                self._desired(event)
            elif event.tree == "inventory" and event.parts[1] != keys.LIVE and not event.deleted:
                self._reports[event.parts[1]] = found if isinstance(found, Observed) else None

    def _desired(self, event: Event) -> None:
        if isinstance(event.object, Fulfilment) and event.object.holds:
            self._holders[event.parts[1]] = event.object
        elif event.deleted:
            self._holders.pop(event.parts[1], None)
            self._reports.pop(event.parts[1], None)

    def _end(self, event: Event, ended: Ended) -> None:
        holder, target = self._holders.get(ended.id), self._targets.get(ended.target)
        if holder is None or target is None or silence.kills_holders(target.driver):
            return
        if not any(task.reason == _LOST for task in ended.tasks):
            return
        self._tally.checked += 1
        why = self._too_early(holder, ended, target)
        if why:
            names = ", ".join(holder.holds)
            self._tally.broken(event.key, event.revision, f"gave up {names} on the lost target {ended.target}: {why}")

    def _too_early(self, holder: Fulfilment, ended: Ended, target: TargetStatus) -> str:
        """Why the holder may have lived on; empty when it cannot."""
        if ended.id not in self._reports:
            return ""
        if all((holder.order, task.job, task.index, task.attempt) in self._words for task in holder.tasks):
            return ""
        report = self._reports[ended.id]
        if report is None or all(task.phase == "Starting" for task in report.tasks):
            return "it may begin to run at any time"
        specs = [holder.jobs.get(task.job) for task in holder.tasks]
        limits = [spec.time_limit for spec in specs if spec is not None and spec.time_limit is not None]
        if len(limits) < len(specs):
            return "it has no time limit"
        passed = _seconds(target, ended)
        if passed is not None and passed < max(limits):
            return f"its time limit is {max(limits):g} s, and the target failed {passed:.1f} s before"
        return ""


def _seconds(target: TargetStatus, ended: Ended) -> float | None:
    """From the target's failure to the end; None when two leaders, with clocks of their own, recorded them."""
    if target.phase != "Failed" or target.epoch != ended.epoch:
        return None
    try:
        return (times.parse(ended.ended, "ended") - times.parse(target.since, "since")).total_seconds()
    except Invalid:
        return None
