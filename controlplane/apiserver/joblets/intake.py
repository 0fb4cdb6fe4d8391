"""The intake of reports of one session: checked, committed together with those of others, answered.

It never raises for a report: what is wrong with it, or with etcd, is in its answer.
"""

from __future__ import annotations

from controlplane.apiserver.dependencies import ApiDependencies
from controlplane.apiserver.joblets import report as rules
from controlplane.apiserver.joblets.session import REACH_SECONDS, Session
from controlplane.model.errors import ControlPlaneError, NotFound
from controlplane.model.fulfilment import Fulfilment, Observed
from controlplane.store import codec, keys
from controlplane.wire import convert
from controlplane.wire.v1 import joblets_pb2


class Intake:
    def __init__(self, deps: ApiDependencies, session: Session) -> None:
        self._deps = deps
        self._session = session
        # What was stored here before the cache heard of it; a report that follows need not wait for the cache.
        self._ahead: dict[str, tuple[int, Observed]] = {}

    async def take(self, report: joblets_pb2.Report) -> joblets_pb2.ReportAck:
        ack = joblets_pb2.ReportAck(id=report.observed.id, report=report.observed.report)
        try:
            # A joblet may be newer than this replica.
            report.DiscardUnknownFields()
            observed = rules.clipped(convert.to_model(report.observed, Observed))
            rules.check(observed, self._session)
            rules.check_attempts(observed, await self._desired(observed.id))
            await self._check_progress(observed, report.base_revision)
            item = rules.item_of(observed, report.base_revision, self._session)
            outcome = await self._deps.writer.write(item)
            rules.judge(outcome, self._session, ack)
            if outcome.succeeded and self._deps.cache.revision < outcome.revision:
                self._ahead[observed.id] = (outcome.revision, observed)
        except ControlPlaneError as error:
            rules.refuse(ack, error)
        return ack

    async def _desired(self, fulfilment: str) -> Fulfilment:
        target = self._session.target
        entry = self._deps.cache.snapshot.get("desired", target, fulfilment)
        if entry is not None:
            return entry.object(Fulfilment)
        # The answer makes the joblet stop it, so a cache that is behind must not give it.
        stored = await self._deps.store.get(keys.desired(target, fulfilment))
        if stored is None:
            raise NotFound(f"fulfilment {fulfilment} is no longer desired on {target}")
        return codec.decode(stored.value, Fulfilment)

    def forget(self, fulfilment: str) -> None:
        """It is no longer desired."""
        self._ahead.pop(fulfilment, None)

    async def _check_progress(self, observed: Observed, base_revision: int) -> None:
        """Against what is stored at the base; on any other base etcd refuses the report anyhow."""
        if base_revision <= 0:
            return
        revision, stored = self._ahead.get(observed.id, (0, None))
        if revision != base_revision:
            self._ahead.pop(observed.id, None)
            stored = await self._stored(observed.id, base_revision)
        if stored is not None:
            rules.check_progress(observed, stored)

    async def _stored(self, fulfilment: str, base_revision: int) -> Observed | None:
        await self._deps.cache.reached(base_revision, REACH_SECONDS)
        entry = self._deps.cache.snapshot.get("inventory", self._session.target, fulfilment)
        return entry.sound(Observed) if entry is not None and entry.revision == base_revision else None
