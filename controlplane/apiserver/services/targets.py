"""The Targets service: named objects joined with what the leader and the joblet say."""

from __future__ import annotations

from typing import Any

from controlplane.apiserver.admission import fields
from controlplane.apiserver.guard import Context, answered
from controlplane.apiserver.listing import items_of, listed
from controlplane.apiserver.services.named import NamedObjects
from controlplane.apiserver.views.named import TargetView
from controlplane.cache.snapshot import Snapshot
from controlplane.model.lifecycle import TargetPhase
from controlplane.model.target import Target
from controlplane.wire.v1 import targets_pb2


class Targets(NamedObjects):
    kind = Target
    message = targets_pb2.Target
    response = targets_pb2.TargetResponse
    listed = targets_pb2.ListTargetsResponse
    event = targets_pb2.TargetEvent

    def make_view(self) -> TargetView:
        return TargetView()

    @answered
    async def List(self, request: Any, context: Context) -> Any:
        if request.phase:
            fields.one_of(request.phase, tuple(TargetPhase), "phase")
        every = items_of(self._view)

        def show(snapshot: Snapshot, key: str) -> Any | None:
            item = every(snapshot, key)
            return item if item is None or request.phase in ("", item.status.phase) else None

        return self.listed(**await listed(self._cache, self._view, request, context, show=show))
