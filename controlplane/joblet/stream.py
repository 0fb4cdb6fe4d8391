"""The one stream between a target's worker and whichever replica serves it.

It says hello, beats, carries what the worker sends in batches of whatever is ready, and leaves a replica that broke
or fell silent for the next one, with the same session. A heartbeat confirms the session from the moment it was put
into the stream, never from its answer.
"""

from __future__ import annotations

import asyncio
import random
import zlib
from collections.abc import Callable, Mapping

import grpc
import structlog

from controlplane.aio.clock import Clock
from controlplane.joblet.gate import Gate
from controlplane.joblet.home import Home
from controlplane.joblet.links import Links
from controlplane.joblet.logs import Logs, Open
from controlplane.joblet.outbox import Outbox
from controlplane.joblet.worker import Worker
from controlplane.model import silence
from controlplane.model.errors import AlreadyExists, NotFound, Refused, StaleAttempt
from controlplane.wire import errors
from controlplane.wire.v1 import common_pb2, joblets_pb2, joblets_pb2_grpc, targets_pb2, targets_pb2_grpc

WELCOME_SECONDS = 2.0
BACK_OFF_SECONDS = 1.0
LIVED_SECONDS = 1.0
# How long one replica is asked for a target that was deleted, before the next one is.
REST_SECONDS = 60.0
_LEAST_OF_A_BEAT = 0.9
log = structlog.get_logger()


class Stream:
    def __init__(
        self,
        hello: joblets_pb2.Hello,
        worker: Worker,
        home: Home,
        *,
        links: Links,
        clock: Clock,
        target: targets_pb2.Target | None,
        logs: Open,
        gate: Gate | None = None,
    ) -> None:
        """`target` is what is created when the replicas do not know it, nothing when None; `logs` opens the log of an
        attempt. While `gate` is shut nobody is spoken to."""
        self._hello = hello
        self._target = target
        self._logs = logs
        self._worker = worker
        self._home = home
        self._links = links
        self._clock = clock
        self._place = zlib.crc32(hello.target.encode())
        self._created = False
        self._welcomed = False
        self._removed = False
        self._session = ""
        self._highest_revision = 0
        self._beat_number = 0
        self._talk: Talk | None = None
        self._gate = gate or Gate()
        self._gate.attach(self._leave)

    def resize(self, capacity: Mapping[str, float]) -> None:
        """The target has this much room from now on."""
        self._hello.capacity.clear()
        self._hello.capacity.update(capacity)
        talk = self._talk
        if talk is not None and talk.welcome is not None and not talk.closed:
            talk.outbox.capacity(dict(capacity))
            self._beat(talk)

    def _leave(self) -> None:
        if self._talk is not None:
            self._talk.close()

    async def run(self) -> None:
        """Goes from replica to replica until cancelled; one round without success is followed by a pause.

        Once its target was deleted it rests until somebody has made the target again.
        """
        endpoints = self._links.endpoints
        failures = 0
        while True:
            endpoint = endpoints[self._place % len(endpoints)]
            await self._gate.opened()
            await self._links.door.acquire()
            began = self._clock.monotonic()
            welcomed = await self._visit(endpoint)
            lived = welcomed and self._clock.monotonic() - began >= LIVED_SECONDS
            if self._removed:
                await self._rest()
            failures = 0 if lived else failures + 1
            self._place += 1
            if failures >= len(endpoints):
                most = min(BACK_OFF_SECONDS, 0.05 * 2 ** min(10, failures - len(endpoints)))
                await self._clock.sleep(most * random.uniform(0.5, 1.0))

    async def _rest(self) -> None:
        """Until the target exists again. The joblet itself never re-creates it: only a freshly started one may."""
        target = self._hello.target
        log.warning("the target was deleted, the joblet rests until it is made again", target=target)
        self._worker.retire()
        while not await self._exists_again(self._links.endpoints[self._place % len(self._links.endpoints)]):
            self._place += 1
            await self._clock.sleep(BACK_OFF_SECONDS * random.uniform(0.5, 1.0))
        log.info("the target was made again", target=target)
        self._removed, self._session = False, ""

    async def _exists_again(self, endpoint: str) -> bool:
        """Watches for the target; False when this replica did not tell of it for a while, or cannot be asked."""
        channel = self._links.channel(endpoint, zlib.crc32(self._hello.target.encode()))
        request = common_pb2.WatchRequest(name=self._hello.target)
        call = targets_pb2_grpc.TargetsStub(channel).Watch(request, timeout=REST_SECONDS)
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
        channel = self._links.channel(endpoint, zlib.crc32(self._hello.target.encode()))
        self._talk = talk = Talk(self._links.door.release, self._logs)
        try:
            await self._create_target(channel)
            talk.call = joblets_pb2_grpc.JobletsStub(channel).Connect()
            await self._listen(talk)
        except grpc.aio.AioRpcError as error:
            self._refused(endpoint, error)
        except asyncio.InvalidStateError:
            log.info("a replica is gone", target=self._hello.target, endpoint=endpoint)
        except asyncio.CancelledError:
            if not talk.closed or _being_cancelled():
                raise
        except TimeoutError:
            log.warning("a replica is silent, trying the next", target=self._hello.target, endpoint=endpoint)
        finally:
            self._worker.disconnected()
            talk.close()
        if talk.start_over:
            await self._start_over(talk.start_over)
        return talk.welcome is not None

    async def _start_over(self, cluster: str) -> None:
        """The control plane works on another etcd: nothing that was done for the one before may go on."""
        log.warning("the control plane was restored, all that runs here is stopped", target=self._hello.target)
        await self._worker.start_over()
        self._home.belong(cluster)
        self._session, self._highest_revision, self._created = "", 0, False

    async def _create_target(self, channel: grpc.aio.Channel) -> None:
        """Like a user would, once: a target that is deleted later stays deleted."""
        if self._created or self._target is None:
            return
        try:
            await targets_pb2_grpc.TargetsStub(channel).Create(self._target, timeout=WELCOME_SECONDS)
        except grpc.aio.AioRpcError as error:
            if error.code() != grpc.StatusCode.ALREADY_EXISTS:
                raise
        self._created = True

    async def _listen(self, talk: Talk) -> None:
        assert talk.call is not None
        hello = joblets_pb2.Hello()
        hello.CopyFrom(self._hello)
        hello.session, hello.highest_revision = self._session, self._highest_revision
        hello.cluster, hello.known_attempt = self._home.cluster, self._home.known_attempt
        hello.leftovers, hello.logs = self._worker.all_alive(), True
        async with asyncio.timeout(WELCOME_SECONDS) as patience:
            await talk.call.write(joblets_pb2.JobletBatch(messages=[joblets_pb2.JobletMessage(hello=hello)]))
            while True:
                batch = await talk.call.read()
                if not isinstance(batch, joblets_pb2.ReplicaBatch):
                    return  # the end of the stream
                for message in batch.messages:
                    self._handle_safely(message, talk)
                if talk.welcome is not None:
                    patience.reschedule(asyncio.get_running_loop().time() + talk.silence_seconds)

    def _refused(self, endpoint: str, error: grpc.aio.AioRpcError) -> None:
        reason = errors.from_rpc(error)
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

    # What the replica says

    def _handle_safely(self, message: joblets_pb2.ReplicaMessage, talk: Talk) -> None:
        """Trouble of this machine ends the connection, not the joblet: the next one begins with all that is desired."""
        try:
            self._handle(message, talk)
        except OSError as error:
            log.warning("a message cannot be acted on", target=self._hello.target, error=str(error))
            talk.close()

    def _handle(self, message: joblets_pb2.ReplicaMessage, talk: Talk) -> None:
        kind = message.WhichOneof("message")
        if kind == "welcome" and message.welcome.start_over:
            talk.start_over = message.welcome.cluster
        elif kind == "welcome":
            self._saw(message.welcome.revision)
            self._be_welcome(message.welcome, talk)
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
            talk.hear(message.heartbeat_ack)
            self._confirm(message.heartbeat_ack.number, talk)
        elif kind == "report_ack":
            self._saw(max(message.report_ack.revision, message.report_ack.observed_revision))
            self._worker.acknowledge(message.report_ack)
        elif kind == "open_log":
            talk.logs.open(message.open_log)
        elif kind == "grant_log":
            talk.logs.grant(message.grant_log)
        elif kind == "close_log":
            talk.logs.close(message.close_log)

    def _saw(self, revision: int) -> None:
        self._highest_revision = max(self._highest_revision, revision)

    def _be_welcome(self, welcome: joblets_pb2.Welcome, talk: Talk) -> None:
        self._welcomed = True
        self._session = welcome.session
        talk.be_welcome(welcome)
        if welcome.cluster and not self._home.cluster:
            self._home.belong(welcome.cluster)
        self._worker.restored(welcome.restored)
        log.info("connected", target=self._hello.target, replica=welcome.replica, session=welcome.session)
        self._worker.connected(welcome.session, talk.outbox.report, self._renew, lambda: self._beat(talk))
        self._beat(talk)

    def _renew(self) -> None:
        self._session = ""
        if self._talk is not None:
            self._talk.close()

    # Heartbeats

    def _beat(self, talk: Talk) -> None:
        now = self._clock.monotonic()
        if self._worker.overdue(now - talk.overdue_seconds):
            log.warning("a replica does not answer reports, trying the next", target=self._hello.target)
            talk.close()
            return
        self._beat_number += 1
        talk.beats[self._beat_number] = now
        stats = self._worker.stats() if talk.reports(now) else {}
        talk.outbox.beat(self._beat_number, stats, self._worker.leftovers())
        # Many that came at the same time must not speak at the same time for ever.
        pause = talk.heartbeat_seconds * random.uniform(_LEAST_OF_A_BEAT, 1.0)
        if talk.next_beat is not None:
            talk.next_beat.cancel()
        talk.next_beat = asyncio.get_running_loop().call_later(pause, self._beat, talk)

    def _confirm(self, number: int, talk: Talk) -> None:
        sent_at = talk.beats.get(number)
        if sent_at is None or talk.welcome is None:
            return
        talk.beats = {other: at for other, at in talk.beats.items() if other > number}
        self._home.confirm(sent_at, talk.welcome.lease_seconds)
        self._worker.confirmed()


def _being_cancelled() -> bool:
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


class Talk:
    """One connection: from the hello to its end."""

    def __init__(self, come_in: Callable[[], None], logs: Open) -> None:
        self._come_in: Callable[[], None] | None = come_in
        self.call: grpc.aio.StreamStreamCall[joblets_pb2.JobletBatch, joblets_pb2.ReplicaBatch] | None = None
        self.welcome: joblets_pb2.Welcome | None = None
        self.outbox = Outbox()
        self.logs = Logs(logs, self.outbox.log)
        self.beats: dict[int, float] = {}
        self.next_beat: asyncio.TimerHandle | None = None
        self.closed = False
        self.start_over = ""
        self.heartbeat_seconds = 1.0
        self._stats_seconds = 0.0
        self._reported = False
        self._reported_at = float("-inf")
        self._writer: asyncio.Task[None] | None = None

    def be_welcome(self, welcome: joblets_pb2.Welcome) -> None:
        assert self.call is not None
        self.welcome = welcome
        self.leave_door()
        self._beat_every(welcome.heartbeat_seconds)
        self._stats_seconds = welcome.stats_seconds
        if self._writer is None:
            self._writer = asyncio.get_running_loop().create_task(self.outbox.carry(self.call))

    def hear(self, ack: joblets_pb2.HeartbeatAck) -> None:
        """The intervals that hold from now on; what a replica does not say stays as it is."""
        self._beat_every(ack.heartbeat_seconds or self.heartbeat_seconds)
        self._stats_seconds = ack.stats_seconds or self._stats_seconds

    def _beat_every(self, seconds: float) -> None:
        """Often enough for the lease, whatever the replica says."""
        assert self.welcome is not None
        self.heartbeat_seconds = silence.beat_seconds(seconds, self.welcome.lease_seconds)

    def reports(self, now: float) -> bool:
        """Whether stats are due with the heartbeat of now."""
        if now - self._reported_at < self._stats_seconds:
            return False
        # Many that came at the same time do not report at the same time for ever: the second report comes early.
        early = 0.0 if self._reported else random.uniform(0.0, self._stats_seconds)
        self._reported, self._reported_at = True, now - early
        return True

    @property
    def silence_seconds(self) -> float:
        """A third of the lease; never so short that a replica in good health could miss it between two beats."""
        lease = self.welcome.lease_seconds if self.welcome is not None else 0.0
        return max(lease / 3, self.heartbeat_seconds * 1.5)

    @property
    def overdue_seconds(self) -> float:
        """How long the answer to a report may take: by then a replica that lives has an answer of some kind."""
        return max(2.0, 2 * self.welcome.lease_seconds) if self.welcome is not None else 2.0

    def leave_door(self) -> None:
        """Welcome or not: the next one may say hello."""
        come_in, self._come_in = self._come_in, None
        if come_in is not None:
            come_in()

    def close(self) -> None:
        """The call's reader then sees a cancellation, which is not one of its task."""
        self.closed = True
        self.leave_door()
        self.logs.end()
        if self.next_beat is not None:
            self.next_beat.cancel()
        if self._writer is not None:
            self._writer.cancel()
        if self.call is not None:
            self.call.cancel()
