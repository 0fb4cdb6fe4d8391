"""P7: phases change only along the tables of `model/lifecycle`; a final phase is final; a late report is refused.

An order without status is Pending, a target without status is Provisioning. Reports only go forward, and no report is
stored while its fulfilment is not desired. The end of an attempt is written once.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence

from controlplane.model.fulfilment import Observed
from controlplane.model.lifecycle import FINAL_ORDER, ORDER, TARGET, OrderPhase, Phases, TargetPhase, may_follow
from controlplane.model.order import OrderStatus
from controlplane.model.target import TargetStatus
from controlplane.model.task import REPORTED, may_report
from controlplane.store import keys
from controlplane.verify.history import KeyChange
from controlplane.verify.p7_made import MadeTargets
from controlplane.verify.promise_verdicts import PromiseVerdict, Tally

# The phase of the fulfilment under "", then the phase of each attempt.
ReportedPhases = Mapping[object, str]


class LifecycleCheck:
    """Follows the phases of orders, targets and reports, and compares every step with the tables."""

    def __init__(self) -> None:
        self.tally = Tally("P7", "no phase changed, and nothing is placed")
        self._made = MadeTargets(self.tally)
        self._orders: dict[str, str] = {}
        self._targets: dict[str, str] = {}
        self._reports: dict[str, ReportedPhases] = {}
        self._desired: set[str] = set()

    def start(self, state: Sequence[KeyChange]) -> None:
        self._made.start(state)
        for event in state:
            if isinstance(event.object, OrderStatus):
                self._orders[event.parts[0]] = event.object.phase
            elif isinstance(event.object, TargetStatus):
                self._targets[event.parts[0]] = event.object.phase
            elif isinstance(event.object, Observed):
                self._reports[event.key] = _phases(event.object)
            elif event.tree == keys.DESIRED:
                self._desired.add(event.key)

    def change(self, revision: int, changes: Sequence[KeyChange]) -> None:
        self._made.change(changes)
        # The transaction of a report compares the placement as it was before.
        for event in changes:
            if event.tree == keys.ORDER_STATUS:
                self._order(event)
            elif event.tree == keys.TARGET_STATUS:
                self._target(event)
            elif event.tree == keys.INVENTORY and event.parts[1] != keys.LIVE:
                self._report(event)
            elif event.tree == keys.ENDED and not event.deleted:
                self.tally.checked += 1
                if not event.is_new:
                    self._broken(event, "was written again: how an attempt ended never changes")
        for event in changes:
            if event.tree == keys.DESIRED:
                (self._desired.discard if event.deleted else self._desired.add)(event.key)

    def verdict(self) -> PromiseVerdict:
        return self.tally.verdict()

    def _order(self, event: KeyChange) -> None:
        name = event.parts[0]
        before = self._orders.get(name)
        if event.deleted:
            # A final phase is remembered: no phase may follow, not even after clean-up. Poison never had a phase.
            if before is not None and before not in FINAL_ORDER:
                self._broken(event, f"was deleted while the order was {before}")
                del self._orders[name]
        elif isinstance(event.object, OrderStatus):
            phase = before or OrderPhase.PENDING.value
            self._orders[name] = self._step(event, phase, event.object.phase, ORDER)

    def _target(self, event: KeyChange) -> None:
        name = event.parts[0]
        if event.deleted:
            self._targets.pop(name, None)
        elif isinstance(event.object, TargetStatus):
            before = self._targets.get(name, TargetPhase.PROVISIONING.value)
            self._targets[name] = self._step(event, before, event.object.phase, TARGET)

    def _step(self, event: KeyChange, before: str, after: str, table: Phases) -> str:
        self.tally.checked += 1
        if not may_follow(table, before, after):
            self._broken(event, f"went from {before} to {after}")
        return sys.intern(after)

    def _report(self, event: KeyChange) -> None:
        if event.deleted:
            self._reports.pop(event.key, None)
            return
        if not isinstance(event.object, Observed):
            return
        self.tally.checked += 1
        if keys.desired(*event.parts) not in self._desired:
            self._broken(event, "was reported while its fulfilment was not desired")
        before, after = self._reports.get(event.key, {}), _phases(event.object)
        for part, phase in after.items():
            earlier = before.get(part)
            if phase not in REPORTED or (earlier is not None and not may_report(earlier, phase)):
                self._broken(event, f"went from {earlier} to {phase}")
        self._reports[event.key] = after

    def _broken(self, event: KeyChange, why: str) -> None:
        self.tally.broken(event.key, event.revision, why)


def _phases(observed: Observed) -> ReportedPhases:
    return {"": observed.phase} | {(task.job, task.index, task.attempt): task.phase for task in observed.tasks}
