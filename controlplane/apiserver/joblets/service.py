"""The Joblets service: a stream begins with a hello, gets its session and its place in the router, then runs."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import TypeAlias

import grpc
import structlog

from controlplane.apiserver import guard
from controlplane.apiserver.dependencies import ApiDependencies
from controlplane.apiserver.joblets.router import Router
from controlplane.apiserver.joblets.session import Sessions, check, has_to_start_over, reach
from controlplane.apiserver.joblets.stream import Stream
from controlplane.apiserver.joblets.telemetry import Moves
from controlplane.model.errors import ControlPlaneError, Invalid, NotFound
from controlplane.wire.v1 import joblets_pb2, joblets_pb2_grpc

log = structlog.get_logger(__name__)

Context: TypeAlias = grpc.aio.ServicerContext[joblets_pb2.JobletBatch, joblets_pb2.ReplicaBatch]

_HELLO_SECONDS = 5.0


class JobletsService(joblets_pb2_grpc.JobletsServicer):  # type: ignore[misc]
    def __init__(self, deps: ApiDependencies) -> None:
        self._deps = deps
        self._sessions = Sessions(deps)
        self.router = Router(deps.cache)
        deps.logs.attach(self.router.taps)
        self._moves = Moves(deps.clock)

    def close(self) -> None:
        """Sends every joblet to another replica; streams that come later are sent away at once."""
        self.router.close()

    def send_away(self, why: str) -> None:
        """Sends every joblet to another replica, and takes those that come back once it can."""
        self.router.send_away(why)

    async def Connect(self, requests: AsyncIterator[joblets_pb2.JobletBatch], context: Context) -> None:
        batches = aiter(requests)
        try:
            first = await _first(batches)
            if first is not None:
                await self._serve(first, batches, context)
        except ControlPlaneError as error:
            await guard.refuse(context, error)

    async def _serve(
        self, first: joblets_pb2.JobletBatch, rest: AsyncIterator[joblets_pb2.JobletBatch], context: Context
    ) -> None:
        hello = first.messages[0].hello
        check(hello)
        await reach(self._deps, hello)
        if has_to_start_over(self._deps, hello):
            log.info("joblet starts over: it worked for another etcd", target=hello.target, cluster=hello.cluster)
            welcome = joblets_pb2.Welcome(cluster=self._deps.space.cluster_id, start_over=True)
            await context.write(joblets_pb2.ReplicaBatch(messages=[joblets_pb2.ReplicaMessage(welcome=welcome)]))
            return
        session = await self._sessions.open(hello)
        stream = Stream(self._deps, session, self._moves, logs=hello.logs)
        self.router.take(stream)
        fields = {"target": session.target, "session": session.name, "instance": hello.instance}
        log.info("joblet connected", **fields)
        try:
            await stream.run(first, rest, context.write)
        except ControlPlaneError as error:
            log.info("joblet sent away", **fields, code=type(error).__name__, why=str(error))
            if isinstance(error, NotFound):
                await self._sessions.close(session)
            raise
        finally:
            self.router.leave(stream)


async def _first(batches: AsyncIterator[joblets_pb2.JobletBatch]) -> joblets_pb2.JobletBatch | None:
    """The batch that begins with a hello; None when the stream ended before it came."""
    try:
        async with asyncio.timeout(_HELLO_SECONDS):
            batch = await anext(batches)
    except StopAsyncIteration:
        return None
    except TimeoutError:
        raise Invalid("hello", f"must come within {_HELLO_SECONDS:g} s") from None
    if not batch.messages or batch.messages[0].WhichOneof("message") != "hello":
        raise Invalid("hello", "must be the first message")
    return batch
