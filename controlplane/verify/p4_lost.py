"""The part of P4 about lost clusters: a claim of a lost target is released only when its holder has certainly ended.

Where no driver kills holders (`driver_traits`), an attempt may end as TargetLost only in three cases: the
attempt was never reported; a person declared the attempt stopped; or the attempt ran with a time limit, which has
passed since the target failed, by the clock of the leader that recorded both.
"""

from __future__ import annotations

from collections.abc import Sequence

from controlplane.model import times
from controlplane.model.driver_traits import traits_of
from controlplane.model.errors import Invalid
from controlplane.model.fulfilment import Ended, Fulfilment, Observed
from controlplane.model.order import Order
from controlplane.model.target import TargetStatus
from controlplane.model.task import AttemptPhase
from controlplane.store import keys
from controlplane.verify.history import KeyChange
from controlplane.verify.promise_verdicts import Tally

_LOST = "TargetLost"
Attempt = tuple[str, str, int, int]


class LostHolders:
    """Follows holders, their reports and their targets, and judges every TargetLost end of a holder."""

    def __init__(self, tally: Tally) -> None:
        self._tally = tally
        self._targets: dict[str, TargetStatus] = {}
        self._holders: dict[str, Fulfilment] = {}
        self._reports: dict[str, Observed | None] = {}
        self._declared_stopped: set[Attempt] = set()

    def change(self, changes: Sequence[KeyChange]) -> None:
        # An end is judged by the state before its transaction.
        for event in changes:
            if event.tree == keys.ENDED and isinstance(event.object, Ended):
                self._end(event, event.object)
        self.follow(changes)

    def follow(self, events: Sequence[KeyChange]) -> None:
        for event in events:
            stored = event.object
            if isinstance(stored, TargetStatus):
                self._targets[stored.target] = stored
            elif isinstance(stored, Order):
                self._declared_stopped.update(
                    (stored.id, task.job, task.index, task.attempt) for task in stored.stopped
                )
            elif event.tree == keys.DESIRED:
                self._desired(event)
            elif event.tree == keys.INVENTORY and event.parts[1] != keys.LIVE and not event.deleted:
                self._reports[event.parts[1]] = stored if isinstance(stored, Observed) else None

    def _desired(self, event: KeyChange) -> None:
        if isinstance(event.object, Fulfilment) and event.object.holds:
            self._holders[event.parts[1]] = event.object
        elif event.deleted:
            self._holders.pop(event.parts[1], None)
            self._reports.pop(event.parts[1], None)

    def _end(self, event: KeyChange, ended: Ended) -> None:
        holder, target = self._holders.get(ended.id), self._targets.get(ended.target)
        if holder is None or target is None or traits_of(target.driver).kills_holders:
            return
        if not any(task.reason == _LOST for task in ended.tasks):
            return
        self._tally.checked += 1
        why = self._too_early(holder, ended, target)
        if why:
            names = ", ".join(holder.holds)
            self._tally.broken(event.key, event.revision, f"gave up {names} on the lost target {ended.target}: {why}")

    def _too_early(self, holder: Fulfilment, ended: Ended, target: TargetStatus) -> str:
        """The reason why the holder may have lived on; empty when the holder had certainly ended."""
        if ended.id not in self._reports:
            return ""
        if all((holder.order, task.job, task.index, task.attempt) in self._declared_stopped for task in holder.tasks):
            return ""
        report = self._reports[ended.id]
        if report is None or all(task.phase == AttemptPhase.STARTING for task in report.tasks):
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
    """Seconds from the target's failure to the end; None when two leaders, with two clocks, recorded them."""
    if target.phase != "Failed" or target.epoch != ended.epoch:
        return None
    try:
        return (times.parse(ended.ended, "ended") - times.parse(target.since, "since")).total_seconds()
    except Invalid:
        return None
