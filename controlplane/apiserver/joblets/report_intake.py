"""The intake of a session's reports: checks, commits together with reports of other sessions, answers.

Faults of a report, and errors of etcd, are in the answer to the report. Only bytes that are no report are raised.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from controlplane.apiserver.api_ports import Reads, Writes
from controlplane.apiserver.joblets import report_rules as rules
from controlplane.apiserver.joblets.replica_messages import Answer
from controlplane.apiserver.joblets.session import REACH_SECONDS, Session
from controlplane.model.errors import ControlPlaneError, Invalid, NotFound
from controlplane.model.fulfilment import Fulfilment, Observed
from controlplane.store import codec, keys
from controlplane.store.transaction import Item
from controlplane.wire import payload
from controlplane.wire.v1.joblets_pb2 import Report


class ReceivedReport(NamedTuple):
    """A report as received, and its coming answer; with a `refusal`, the rest of the report was not read."""

    observed: Observed
    base_revision: int
    answer: Answer
    refusal: Invalid | None = None


class PreparedReport(NamedTuple):
    received: ReceivedReport
    item: Item


class ReportIntake:
    def __init__(self, reads: Reads, writes: Writes, session: Session) -> None:
        self._reads = reads
        self._writes = writes
        self._session = session
        # Reports stored here which the cache does not show yet: the next report need not wait for the cache.
        self._ahead: dict[str, tuple[int, Observed]] = {}

    def read(self, report: Report) -> ReceivedReport:
        """Invalid when the bytes name no report to answer. An insane report is refused like any other."""
        try:
            observed = rules.clipped(payload.observed(report.observed))
        except Invalid as error:
            receipt = payload.receipt(report.observed)
            if receipt is None:
                raise
            unread = Observed(id=receipt.id, target="", session="", report=receipt.report, phase="", tasks=())
            return ReceivedReport(unread, report.base_revision, Answer(receipt.id, receipt.report), error)
        return ReceivedReport(observed, report.base_revision, Answer(observed.id, observed.report))

    def prepare(self, received: ReceivedReport) -> PreparedReport | None:
        """The write for the report; None when preparing needs a wait. An error raised is the report's own."""
        if received.refusal is not None:
            raise received.refusal
        rules.check(received.observed, self._session)
        desired = self._reads.cache.snapshot.get(keys.DESIRED, self._session.target, received.observed.id)
        if desired is None:
            return None
        stored: Observed | None = None
        if received.base_revision > 0:
            revision, stored = self._ahead.get(received.observed.id, (0, None))
            if revision != received.base_revision:
                if received.base_revision > self._reads.cache.revision:
                    return None
                stored = self._cached(received.observed.id, received.base_revision)
        return self._compared(received, desired.object(), stored)

    async def prepare_late(self, received: ReceivedReport) -> PreparedReport:
        """Like `prepare`, for a placement or a base which the cache does not show yet."""
        desired = await self._desired(received.observed.id)
        stored: Observed | None = None
        if received.base_revision > 0:
            await self._reads.cache.reached(received.base_revision, REACH_SECONDS)
            stored = self._cached(received.observed.id, received.base_revision)
        return self._compared(received, desired, stored)

    def _compared(self, received: ReceivedReport, desired: Fulfilment, stored: Observed | None) -> PreparedReport:
        """`stored` is the report before; on any other base etcd refuses the write."""
        rules.check_attempts(received.observed, desired)
        if stored is not None:
            rules.check_progress(received.observed, stored)
        return PreparedReport(received, rules.item_of(received.observed, received.base_revision, self._session))

    async def store(self, prepared: Sequence[PreparedReport]) -> list[Answer]:
        """The answers, in the order of the reports."""
        outcomes = await self._writes.writer.write_all([item for _, item in prepared])
        for (received, _), outcome in zip(prepared, outcomes, strict=True):
            if isinstance(outcome, ControlPlaneError):
                rules.refuse(received.answer, outcome)
                continue
            rules.judge(outcome, self._session, received.answer)
            if outcome.succeeded and self._reads.cache.revision < outcome.revision:
                self._ahead[received.observed.id] = (outcome.revision, received.observed)
            else:
                self._ahead.pop(received.observed.id, None)
        return [received.answer for received, _ in prepared]

    def forget(self, fulfilment: str) -> None:
        """The fulfilment is no longer desired."""
        self._ahead.pop(fulfilment, None)

    async def _desired(self, fulfilment: str) -> Fulfilment:
        target = self._session.target
        entry = self._reads.cache.snapshot.get(keys.DESIRED, target, fulfilment)
        if entry is not None:
            return entry.object()
        # The refusal makes the joblet stop the fulfilment, so a cache that is behind must not decide it.
        stored = await self._reads.store.get(keys.desired(target, fulfilment))
        if stored is None:
            raise NotFound(f"fulfilment {fulfilment} is no longer desired on {target}")
        return codec.read(stored, Fulfilment)

    def _cached(self, fulfilment: str, base_revision: int) -> Observed | None:
        entry = self._reads.cache.snapshot.get(keys.INVENTORY, self._session.target, fulfilment)
        return entry.readable() if entry is not None and entry.revision == base_revision else None
