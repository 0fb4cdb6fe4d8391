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

    async def take(self, report: joblets_pb2.Report) -> joblets_pb2.ReportAck:
        ack = joblets_pb2.ReportAck(id=report.observed.id, report=report.observed.report)
        try:
            # A joblet may be newer than this replica.
            report.DiscardUnknownFields()
            observed = convert.to_model(report.observed, Observed)
            rules.check(observed, self._session)
            rules.check_attempts(observed, await self._desired(observed.id))
            await self._check_progress(observed, report.base_revision)
            item = rules.item_of(observed, report.base_revision, self._session)
            rules.judge(await self._deps.writer.write(item), self._session, ack)
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

    async def _check_progress(self, observed: Observed, base_revision: int) -> None:
        """Against what is stored at the base; on any other base etcd refuses the report anyhow."""
        if base_revision <= 0:
            return
        cache = self._deps.cache
        await cache.reached(base_revision, REACH_SECONDS)
        entry = cache.snapshot.get("inventory", self._session.target, observed.id)
        stored = entry.sound(Observed) if entry is not None and entry.revision == base_revision else None
        if stored is not None:
            rules.check_progress(observed, stored)
