"""Logs: what a user asks of a task, and what replicas ask of each other."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import Any

from controlplane.apiserver.dependencies import ApiDependencies
from controlplane.apiserver.guard import Context, streamed
from controlplane.apiserver.logs.bell import Bell
from controlplane.apiserver.logs.reading import Reading
from controlplane.apiserver.views.orders import OrderView
from controlplane.wire.v1 import logs_pb2, logs_pb2_grpc


class ReadingLogs:
    """A part of the Orders service."""

    _deps: ApiDependencies
    _view: OrderView
    _bell: Bell

    @streamed
    def Logs(self, request: Any, context: Context) -> AsyncGenerator[Any, None]:
        return Reading(self._deps, self._view, self._bell, request).chunks(context)


class PeerLogs(logs_pb2_grpc.LogsServicer):  # type: ignore[misc]
    """Never asks another replica: a question travels one step at most."""

    def __init__(self, deps: ApiDependencies) -> None:
        self._deps = deps

    @streamed
    async def Read(self, request: Any, context: Context) -> AsyncGenerator[Any, None]:
        log = self._deps.logs.open_here(request.target, request.query)
        try:
            yield logs_pb2.LogPiece()
            while (piece := await log.read()) is not None:
                yield piece
        finally:
            log.close()
