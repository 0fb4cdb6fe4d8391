"""The intake of reports of one session: checked, committed together with those of others, answered.

What is wrong with a report, or with etcd, is in its answer. Only what is no report at all is raised.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from controlplane.apiserver.dependencies import ApiDependencies
from controlplane.apiserver.joblets import report as rules
from controlplane.apiserver.joblets.messages import Answer
from controlplane.apiserver.joblets.session import REACH_SECONDS, Session
from controlplane.model.errors import ControlPlaneError, Invalid, NotFound
from controlplane.model.fulfilment import Fulfilment, Observed
from controlplane.store import keys, places
from controlplane.store.transaction import Item
from controlplane.wire import payload
from controlplane.wire.v1.joblets_pb2 import Report


class Told(NamedTuple):
    """A report as it came, and the answer that it is going to get; with a `refusal`, nothing else of it was read."""

    observed: Observed
    base_revision: int
    answer: Answer
    refusal: Invalid | None = None


class Prepared(NamedTuple):
    told: Told
    item: Item


class Intake:
    def __init__(self, deps: ApiDependencies, session: Session) -> None:
        self._deps = deps
        self._session = session
        # What was stored here before the cache heard of it; a report that follows need not wait for the cache.
        self._ahead: dict[str, tuple[int, Observed]] = {}

    def read(self, report: Report) -> Told:
        """Invalid when there is nobody to answer. What is not sane in a report is refused like any other report."""
        try:
            observed = rules.clipped(payload.observed(report.observed))
        except Invalid as error:
            receipt = payload.receipt(report.observed)
            if receipt is None:
                raise
            unread = Observed(id=receipt.id, target="", session="", report=receipt.report, phase="", tasks=())
            return Told(unread, report.base_revision, Answer(receipt.id, receipt.report), error)
        return Told(observed, report.base_revision, Answer(observed.id, observed.report))

    def prepare(self, told: Told) -> Prepared | None:
        """What to write for it; None when that cannot be told without waiting. Its error is that of the report."""
        if told.refusal is not None:
            raise told.refusal
        rules.check(told.observed, self._session)
        desired = self._deps.cache.snapshot.get("desired", self._session.target, told.observed.id)
        if desired is None:
            return None
        stored: Observed | None = None
        if told.base_revision > 0:
            revision, stored = self._ahead.get(told.observed.id, (0, None))
            if revision != told.base_revision:
                if told.base_revision > self._deps.cache.revision:
                    return None
                stored = self._cached(told.observed.id, told.base_revision)
        return self._compared(told, desired.object(Fulfilment), stored)

    async def prepare_late(self, told: Told) -> Prepared:
        """The same for what the cache does not show yet."""
        desired = await self._desired(told.observed.id)
        stored: Observed | None = None
        if told.base_revision > 0:
            await self._deps.cache.reached(told.base_revision, REACH_SECONDS)
            stored = self._cached(told.observed.id, told.base_revision)
        return self._compared(told, desired, stored)

    def _compared(self, told: Told, desired: Fulfilment, stored: Observed | None) -> Prepared:
        """`stored` is what the report follows; on any other base etcd refuses it anyhow."""
        rules.check_attempts(told.observed, desired)
        if stored is not None:
            rules.check_progress(told.observed, stored)
        return Prepared(told, rules.item_of(told.observed, told.base_revision, self._session))

    async def store(self, prepared: Sequence[Prepared]) -> list[Answer]:
        """The answers, in the order of the reports."""
        outcomes = await self._deps.writer.write_all([item for _, item in prepared])
        for (told, _), outcome in zip(prepared, outcomes, strict=True):
            if isinstance(outcome, ControlPlaneError):
                rules.refuse(told.answer, outcome)
                continue
            rules.judge(outcome, self._session, told.answer)
            if outcome.succeeded and self._deps.cache.revision < outcome.revision:
                self._ahead[told.observed.id] = (outcome.revision, told.observed)
            else:
                self._ahead.pop(told.observed.id, None)
        return [told.answer for told, _ in prepared]

    def forget(self, fulfilment: str) -> None:
        """It is no longer desired."""
        self._ahead.pop(fulfilment, None)

    async def _desired(self, fulfilment: str) -> Fulfilment:
        target = self._session.target
        entry = self._deps.cache.snapshot.get("desired", target, fulfilment)
        if entry is not None:
            return entry.object(Fulfilment)
        # The answer makes the joblet stop it, so a cache that is behind must not give it.
        stored = await self._deps.store.get(keys.desired(target, fulfilment))
        if stored is None:
            raise NotFound(f"fulfilment {fulfilment} is no longer desired on {target}")
        return places.read(stored, Fulfilment)

    def _cached(self, fulfilment: str, base_revision: int) -> Observed | None:
        entry = self._deps.cache.snapshot.get("inventory", self._session.target, fulfilment)
        return entry.sound(Observed) if entry is not None and entry.revision == base_revision else None
