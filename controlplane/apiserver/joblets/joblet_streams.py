"""The joblets' streams of a replica: a stream begins with a hello, gets a session and a place in the router."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import structlog

from controlplane.apiserver import authorisation
from controlplane.apiserver.api_ports import ApiPorts
from controlplane.apiserver.authorisation import Verb
from controlplane.apiserver.call import Call
from controlplane.apiserver.joblets.router import Router
from controlplane.apiserver.joblets.session import Sessions, check, has_to_start_over, reach
from controlplane.apiserver.joblets.session_pace import LeaseMoves
from controlplane.apiserver.joblets.session_stream import Send, SessionStream
from controlplane.apiserver.logs.log_broker import LogBroker
from controlplane.model.access import Subject
from controlplane.model.errors import ControlPlaneError, Forbidden, Invalid, NotFound
from controlplane.wire.v1 import joblets_pb2

log = structlog.get_logger(__name__)

_HELLO_SECONDS = 5.0


class JobletStreams:
    def __init__(self, ports: ApiPorts, broker: LogBroker) -> None:
        self._ports = ports
        self._sessions = Sessions(ports.reads, ports.writes, ports.record)
        self._router = Router(ports.reads.cache)
        broker.attach(self._router.logs_of)
        self._moves = LeaseMoves(ports.writes.clock)

    def close(self) -> None:
        """Sends every joblet to another replica; streams that come later are sent away at once."""
        self._router.close()

    def send_away(self, why: str) -> None:
        """Sends every joblet to another replica, and takes joblets back as soon as this replica can."""
        self._router.send_away(why)

    async def connect(self, call: Call, batches: AsyncIterator[joblets_pb2.JobletBatch], send: Send) -> None:
        first = await _first(batches)
        if first is not None:
            may_speak_for(call.subject, first.messages[0].hello)
            await self._serve(first, batches, send)

    async def _serve(
        self, first: joblets_pb2.JobletBatch, rest: AsyncIterator[joblets_pb2.JobletBatch], send: Send
    ) -> None:
        ports, hello = self._ports, first.messages[0].hello
        check(hello)
        cluster_id = ports.writes.space.cluster_id
        await reach(ports.reads, cluster_id, hello)
        if has_to_start_over(ports.reads, cluster_id, hello):
            log.info("joblet starts over: it worked for another etcd", target=hello.target, cluster=hello.cluster)
            welcome = joblets_pb2.Welcome(cluster=cluster_id, start_over=True)
            await send(joblets_pb2.ReplicaBatch(messages=[joblets_pb2.ReplicaMessage(welcome=welcome)]))
            return
        session = await self._sessions.open(hello)
        stream = SessionStream(
            ports.reads,
            ports.writes,
            session,
            replica_id=ports.replica.id,
            renewals=ports.renewals,
            moves=self._moves,
            understands_logs=hello.logs,
        )
        self._router.take(stream)
        fields = {"target": session.target, "session": session.name, "instance": hello.instance}
        log.info("joblet connected", **fields)
        try:
            await stream.run(first, rest, send)
        except ControlPlaneError as error:
            log.info("joblet sent away", **fields, code=type(error).__name__, why=str(error))
            if isinstance(error, NotFound):
                await self._sessions.close(session)
            raise
        finally:
            self._router.leave(stream)


def may_speak_for(subject: Subject, hello: joblets_pb2.Hello) -> None:
    """Forbidden, before anything is told of the target, when the credential is for another target or driver."""
    authorisation.check(subject, Verb.CONNECT, "Target", field="target", target=hello.target)
    if subject.driver and subject.driver != hello.driver:
        raise Forbidden(f"driver: the credential is for a joblet of driver {subject.driver}", field="driver")


async def _first(batches: AsyncIterator[joblets_pb2.JobletBatch]) -> joblets_pb2.JobletBatch | None:
    """The batch with the hello in front; None when the stream ended before a batch came."""
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
