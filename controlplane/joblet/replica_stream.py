"""The one stream between the worker of a target and whichever replica serves the target.

The stream says hello, sends heartbeats, carries the messages of the worker in batches, and leaves a replica that broke
or fell silent for the next one, with the same session. A heartbeat confirms the session from the moment it was put into
the stream, never from the moment of its answer.
"""

from __future__ import annotations

import asyncio
import random
import zlib
from collections.abc import Mapping

import grpc
import structlog

from controlplane.aio.backoff import Backoff, doubling
from controlplane.aio.clock import Clock
from controlplane.joblet.connection import Connection
from controlplane.joblet.gate import Gate
from controlplane.joblet.joblet_state import JobletState
from controlplane.joblet.log_transfers import Open
from controlplane.joblet.replica_channels import ReplicaChannels
from controlplane.joblet.worker import Worker
from controlplane.model.errors import AlreadyExists, NotFound, Refused, StaleAttempt, Unauthenticated
from controlplane.wire import status_codes, transport
from controlplane.wire.v1 import common_pb2, joblets_pb2, joblets_pb2_grpc, targets_pb2, targets_pb2_grpc

WELCOME_SECONDS = 2.0
LIVED_SECONDS = 1.0
# How long a joblet watches one replica for its deleted target before it asks the next one.
WATCH_SECONDS = 60.0
_BACKOFF = doubling(0.05, 1.0, jitter=0.5)
# After a credential was refused: replicas will refuse it again, unless somebody acts.
_DENIED = doubling(0.5, 30.0, jitter=0.5)
_LOOK_AGAIN = Backoff((1.0,), jitter=0.5)
_LEAST_OF_A_BEAT = 0.9
log = structlog.get_logger(__name__)


class ReplicaStream:
    def __init__(
        self,
        hello: joblets_pb2.Hello,
        worker: Worker,
        state: JobletState,
        *,
        channels: ReplicaChannels,
        clock: Clock,
        target: targets_pb2.Target | None,
        logs: Open,
        gate: Gate | None = None,
    ) -> None:
        """`target` is created when the replicas do not know it, unless it is None; `logs` opens the log of an attempt.
        While `gate` is shut the stream speaks to no replica."""
        self._hello = hello
        self._target = target
        self._logs = logs
        self._worker = worker
        self._state = state
        self._channels = channels
        self._clock = clock
        self._channel_number = zlib.crc32(hello.target.encode())
        self._next_replica = self._channel_number
        self._created = False
        self._welcomed = False
        self._removed = False
        self._session = ""
        self._highest_revision = 0
        self._beat_number = 0
        self._connection: Connection | None = None
        self._gate = gate or Gate()
        self._gate.attach(self._leave)
        self._denied = False
        channels.credential.when_renewed(self._leave_within)

    def resize(self, capacity: Mapping[str, float]) -> None:
        """The target has this much room from now on."""
        self._hello.capacity.clear()
        self._hello.capacity.update(capacity)
        connection = self._connection
        if connection is not None and connection.welcome is not None and not connection.closed:
            connection.queue.capacity(dict(capacity))
            self._beat(connection)

    def _leave(self) -> None:
        if self._connection is not None:
            self._connection.close()

    def _leave_within(self, seconds: float) -> None:
        """The stream shows the renewed credential before the former one ends; streams of one process leave apart."""
        asyncio.get_running_loop().call_later(random.uniform(0.0, seconds), self._leave)

    async def run(self) -> None:
        """Goes from replica to replica until cancelled; a pause follows each round without success.

        Once the target was deleted the stream is idle until a user has created the target again.
        """
        replicas = len(self._channels.endpoints)
        failures = denials = 0
        while True:
            await self._gate.opened()
            shown = await self._channels.credential.metadata()
            await self._channels.hello_slots.acquire()
            began, self._denied = self._clock.monotonic(), False
            welcomed = await self._visit(self._endpoint)
            lived = welcomed and self._clock.monotonic() - began >= LIVED_SECONDS
            if self._removed:
                await self._idle_until_recreated()
            failures = 0 if lived else failures + 1
            self._next_replica += 1
            denials = denials + 1 if self._denied else 0
            if denials:
                pause = _DENIED.after(denials, random.random())
                await self._channels.credential.replaced(shown, within_seconds=pause)
            elif failures >= replicas:
                await self._clock.sleep(_BACKOFF.after(failures - replicas + 1, random.random()))

    @property
    def _endpoint(self) -> str:
        endpoints = self._channels.endpoints
        return endpoints[self._next_replica % len(endpoints)]

    async def _idle_until_recreated(self) -> None:
        """The target was deleted. Only a freshly started joblet may re-create it, so this joblet waits for a user."""
        target = self._hello.target
        log.warning("the target was deleted, the joblet is idle until it is created again", target=target)
        self._worker.retire()
        while not await self._exists_again(self._endpoint):
            self._next_replica += 1
            await self._clock.sleep(_LOOK_AGAIN.after(1, random.random()))
        log.info("the target was created again", target=target)
        self._removed, self._session = False, ""

    async def _exists_again(self, endpoint: str) -> bool:
        """Watches for the target; False when this replica did not show it for a while, or cannot be asked."""
        channel = self._channels.channel(endpoint, self._channel_number)
        request = common_pb2.WatchRequest(name=self._hello.target)
        call = targets_pb2_grpc.TargetsStub(channel).Watch(
            request, timeout=WATCH_SECONDS, metadata=await self._channels.credential.metadata()
        )
        try:
            async for event in call:
                if event.type == "put":
                    return True
        except grpc.aio.AioRpcError as error:
            if error.code() != grpc.StatusCode.DEADLINE_EXCEEDED:
                log.info("a replica cannot be asked", target=self._hello.target, endpoint=endpoint, code=error.code())
        finally:
            call.cancel()
        return False

    async def _visit(self, endpoint: str) -> bool:
        channel = self._channels.channel(endpoint, self._channel_number)
        self._connection = connection = Connection(self._channels.hello_slots.release, self._logs)
        metadata = await self._channels.credential.metadata()
        try:
            await self._create_target(channel, metadata)
            connection.call = joblets_pb2_grpc.JobletsStub(channel).Connect(metadata=metadata)
            await self._listen(connection)
        except grpc.aio.AioRpcError as error:
            self._refused(endpoint, error, metadata)
        except asyncio.InvalidStateError:
            log.info("a replica is gone", target=self._hello.target, endpoint=endpoint)
        except asyncio.CancelledError:
            if not connection.closed or _being_cancelled():
                raise
        except TimeoutError:
            log.warning("a replica is silent, trying the next", target=self._hello.target, endpoint=endpoint)
        finally:
            self._worker.disconnected()
            connection.close()
        if connection.start_over:
            await self._start_over(connection.start_over)
        return connection.welcome is not None

    async def _start_over(self, cluster: str) -> None:
        """The control plane works on another etcd: all work for the former etcd has to end first."""
        log.warning("the control plane was restored, all work here is stopped", target=self._hello.target)
        await self._worker.start_over()
        self._state.bind_to_cluster(cluster)
        self._session, self._highest_revision, self._created = "", 0, False

    async def _create_target(self, channel: grpc.aio.Channel, metadata: transport.Metadata) -> None:
        """Creates the target as a user would, once: a target that is deleted later stays deleted."""
        if self._created or self._target is None:
            return
        try:
            await targets_pb2_grpc.TargetsStub(channel).Create(self._target, timeout=WELCOME_SECONDS, metadata=metadata)
        except grpc.aio.AioRpcError as error:
            if error.code() != grpc.StatusCode.ALREADY_EXISTS:
                raise
        self._created = True

    async def _listen(self, connection: Connection) -> None:
        assert connection.call is not None
        hello = joblets_pb2.Hello()
        hello.CopyFrom(self._hello)
        hello.session, hello.highest_revision = self._session, self._highest_revision
        hello.cluster, hello.known_attempt = self._state.cluster, self._state.known_attempt
        hello.leftovers, hello.logs = self._worker.all_alive(), True
        async with asyncio.timeout(WELCOME_SECONDS) as patience:
            await connection.call.write(joblets_pb2.JobletBatch(messages=[joblets_pb2.JobletMessage(hello=hello)]))
            while True:
                batch = await connection.call.read()
                if not isinstance(batch, joblets_pb2.ReplicaBatch):
                    return  # the end of the stream
                for message in batch.messages:
                    self._handle_safely(message, connection)
                if connection.welcome is not None:
                    patience.reschedule(asyncio.get_running_loop().time() + connection.silence_seconds)

    def _refused(self, endpoint: str, error: grpc.aio.AioRpcError, metadata: transport.Metadata) -> None:
        reason = status_codes.from_rpc(error)
        if isinstance(reason, Unauthenticated):
            self._denied = True
            self._channels.credential.deny(metadata)
        if isinstance(reason, StaleAttempt):
            self._session = ""
        elif isinstance(reason, NotFound):
            self._created, self._removed = self._welcomed, self._welcomed
        if isinstance(reason, AlreadyExists):
            log.warning("another joblet holds the target", target=self._hello.target, endpoint=endpoint)
        elif isinstance(reason, Refused):
            log.warning("a replica refused", target=self._hello.target, endpoint=endpoint, reason=str(reason))
        else:
            log.info("a replica is gone", target=self._hello.target, endpoint=endpoint, reason=str(reason))

    # Messages of the replica

    def _handle_safely(self, message: joblets_pb2.ReplicaMessage, connection: Connection) -> None:
        """An OSError ends the connection, not the joblet: the next connection begins with the full desired list."""
        try:
            self._handle(message, connection)
        except OSError as error:
            log.warning("a message cannot be acted on", target=self._hello.target, error=str(error))
            connection.close()

    def _handle(self, message: joblets_pb2.ReplicaMessage, connection: Connection) -> None:
        kind = message.WhichOneof("message")
        if kind == "welcome" and message.welcome.start_over:
            connection.start_over = message.welcome.cluster
        elif kind == "welcome":
            self._saw(message.welcome.revision)
            self._on_welcome(message.welcome, connection)
        elif kind == "assign":
            self._saw(max(message.assign.revision, message.assign.observed_revision))
            self._worker.assign(message.assign)
        elif kind == "withdraw":
            self._saw(message.withdraw.revision)
            self._worker.withdraw(message.withdraw.id)
        elif kind == "synced":
            self._saw(message.synced.revision)
            self._worker.sync()
        elif kind == "heartbeat_ack":
            connection.take_intervals(message.heartbeat_ack)
            self._confirm(message.heartbeat_ack.number, connection)
        elif kind == "report_ack":
            self._saw(max(message.report_ack.revision, message.report_ack.observed_revision))
            self._worker.acknowledge(message.report_ack)
        elif kind == "open_log":
            connection.logs.open(message.open_log)
        elif kind == "grant_log":
            connection.logs.grant(message.grant_log)
        elif kind == "close_log":
            connection.logs.close(message.close_log)

    def _saw(self, revision: int) -> None:
        self._highest_revision = max(self._highest_revision, revision)

    def _on_welcome(self, welcome: joblets_pb2.Welcome, connection: Connection) -> None:
        self._welcomed = self._channels.credential.was_accepted = True
        self._session = welcome.session
        connection.on_welcome(welcome)
        if welcome.cluster and not self._state.cluster:
            self._state.bind_to_cluster(welcome.cluster)
        self._worker.restored(welcome.restored)
        log.info("connected", target=self._hello.target, replica=welcome.replica, session=welcome.session)
        self._worker.connected(welcome.session, connection.queue.report, self._renew, lambda: self._beat(connection))
        self._beat(connection)

    def _renew(self) -> None:
        self._session = ""
        if self._connection is not None:
            self._connection.close()

    # Heartbeats

    def _beat(self, connection: Connection) -> None:
        now = self._clock.monotonic()
        if self._worker.overdue(now - connection.overdue_seconds):
            log.warning("a replica does not answer reports, trying the next", target=self._hello.target)
            connection.close()
            return
        self._beat_number += 1
        connection.beats[self._beat_number] = now
        stats = self._worker.stats() if connection.stats_due(now) else {}
        connection.queue.beat(self._beat_number, stats, self._worker.leftovers())
        # Joblets that connected at the same time must not beat at the same time for ever.
        pause = connection.heartbeat_seconds * random.uniform(_LEAST_OF_A_BEAT, 1.0)
        if connection.next_beat is not None:
            connection.next_beat.cancel()
        connection.next_beat = asyncio.get_running_loop().call_later(pause, self._beat, connection)

    def _confirm(self, number: int, connection: Connection) -> None:
        sent_at = connection.beats.get(number)
        if sent_at is None or connection.welcome is None:
            return
        connection.beats = {other: at for other, at in connection.beats.items() if other > number}
        self._state.confirm(sent_at, connection.welcome.lease_seconds)
        self._worker.confirmed()


def _being_cancelled() -> bool:
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0
