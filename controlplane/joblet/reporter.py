"""The chain of reports of one fulfilment: one report at a time, each based on the revision of the one before. Pure.

A report whose answer is missing or says "unknown" is never taken for stored or for lost: the next report, with a new
number and on the same base, is either stored or refused together with the report that is stored instead.
"""

from __future__ import annotations

from dataclasses import replace
from enum import Enum

import msgspec

from controlplane.joblet.reconcile import FulfilmentDecision
from controlplane.model.fulfilment import Observed

MOST_BYTES = 200 << 10
# A generous bound for all other fields of a task.
TASK_BYTES = 200


class ReportOutcome(Enum):
    """What the answer to a report means for its fulfilment."""

    GO_ON = "go on"
    AGAIN_LATER = "again later"
    GONE = "gone"
    STALE_SESSION = "stale session"
    IGNORE = "ignore"


_OUTCOMES = {
    "NotFound": ReportOutcome.GONE,
    "StaleAttempt": ReportOutcome.STALE_SESSION,
    "Unavailable": ReportOutcome.AGAIN_LATER,
    "OutcomeUnknown": ReportOutcome.AGAIN_LATER,
}


def fit(decision: FulfilmentDecision) -> FulfilmentDecision:
    """The decision with less detail when its report would be too big to be stored: messages go first."""
    size = sum(len(task.message) + sum(map(len, task.artefacts)) + TASK_BYTES for task in decision.tasks)
    if size <= MOST_BYTES:
        return decision
    tasks = [msgspec.structs.replace(task, message="") for task in decision.tasks]
    left = MOST_BYTES - TASK_BYTES * len(tasks)
    for at, task in enumerate(tasks):
        left -= sum(map(len, task.artefacts))
        if left < 0:
            tasks[at] = msgspec.structs.replace(task, artefacts=())
    return replace(decision, tasks=tuple(tasks))


class Chain:
    """`stored` is the report that the control plane has, at revision `base` (0 for none).

    `outstanding` is the report that was sent and not answered, `failures` the number of failed reports in a row.
    """

    __slots__ = ("_number", "base", "failures", "outstanding", "stored")

    def __init__(self) -> None:
        self.stored: Observed | None = None
        self.base = 0
        self.outstanding: Observed | None = None
        self.failures = 0
        self._number = 0

    def learn(self, stored: Observed | None, revision: int) -> None:
        """A replica names the stored report. Ignored when `revision` is older than the one already known."""
        if revision >= self.base:
            self._take(stored, revision)

    def _take(self, stored: Observed | None, revision: int) -> None:
        self.base = revision
        self.stored = stored
        if stored is not None:
            self._number = max(self._number, stored.report)

    def reconnected(self) -> None:
        """The answer to an outstanding report will never come."""
        self.outstanding = None

    def has_news(self, decision: FulfilmentDecision) -> bool:
        """Whether the decision differs from the stored report, and no answer is outstanding."""
        stored = self.stored
        if self.outstanding is not None:
            return False
        return stored is None or stored.phase != decision.phase or stored.tasks != decision.tasks

    def next(self, identity: tuple[str, str, str], decision: FulfilmentDecision, now: str) -> Observed | None:
        """The report to send now; None when there is no news or the last report was not answered."""
        if not self.has_news(decision):
            return None
        self._number += 1
        fulfilment, target, session = identity
        self.outstanding = Observed(
            id=fulfilment,
            target=target,
            session=session,
            report=self._number,
            phase=decision.phase,
            tasks=decision.tasks,
            observed=now,
        )
        return self.outstanding

    def acknowledge(self, report: int, code: str, stored: Observed | None, revision: int) -> ReportOutcome:
        sent = self.outstanding
        if sent is None or sent.report != report:
            return ReportOutcome.IGNORE
        self.outstanding = None
        self.failures = 0 if code in ("", "Conflict") else self.failures + 1
        if not code:
            self._take(sent, revision)
            return ReportOutcome.GO_ON
        if code == "Conflict":
            same = stored is not None and (stored.report, stored.session) == (sent.report, sent.session)
            self._take(sent if same else stored, revision)
            return ReportOutcome.GO_ON
        return _OUTCOMES.get(code, ReportOutcome.AGAIN_LATER)
