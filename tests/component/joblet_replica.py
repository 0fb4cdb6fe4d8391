"""A replica as a joblet sees it: real gRPC servers over one shared store in memory. Stands in at the port only."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable

import grpc

from controlplane.model import errors
from controlplane.model.fulfilment import Fulfilment, Observed, TaskRef, TaskSpec
from controlplane.wire import payload
from controlplane.wire.status_codes import code_of, trailing_metadata
from controlplane.wire.v1 import common_pb2, joblets_pb2, joblets_pb2_grpc, targets_pb2, targets_pb2_grpc

ORDER = "01HZZZZZZZZZZZZZZZZZZZZZZZ"
Out = joblets_pb2.ReplicaMessage


def a_fulfilment(number: int, *command: str, tasks: int = 1, holds: tuple[str, ...] = (), **spec: object) -> Fulfilment:
    return Fulfilment(
        id=f"01HYYYYYYYYYYYYYYYYYYY{number:04d}",
        epoch=1,
        cycle=1,
        order=ORDER,
        target="here",
        tasks=tuple(TaskRef(job="job-0", index=number * 100 + index, attempt=1) for index in range(tasks)),
        jobs={"job-0": TaskSpec(command=command, **spec)},  # type: ignore[arg-type]
        holds=holds,
    )


class World:
    """What the replicas share, as etcd would hold it."""

    def __init__(self, *, lease_seconds: float = 6.0, heartbeat_seconds: float = 0.2) -> None:
        self.lease_seconds = lease_seconds
        self.heartbeat_seconds = heartbeat_seconds
        self.revision = 1
        self.desired: dict[str, Fulfilment] = {}
        self.observed: dict[str, tuple[int, Observed]] = {}
        self.history: list[Observed] = []
        self.received: list[Observed] = []
        self.hellos: list[joblets_pb2.Hello] = []
        # What each heartbeat said of what is left over; None where it said nothing.
        self.leftovers: list[int | None] = []
        self.removed = False
        self.targets: dict[str, targets_pb2.Target] = {}
        self.watched: list[str] = []
        self.session = ""
        self.secret: str | None = None
        self.sessions = 0
        self.confirming = True
        self.speaking = True
        # Many targets in one world: secrets are not compared.
        self.shared = False
        # The etcd behind it, and whether that came from a backup.
        self.cluster = ""
        self.restored = False
        # Codes for the next reports; "lost" stores one and says OutcomeUnknown, "Conflict" stores it as if it had come
        # before, "deaf" never answers.
        self.answers: list[str] = []
        self.outputs: set[asyncio.Queue[list[Out] | None]] = set()
        self.changed = asyncio.Condition()

    async def until(self, holds: Callable[[], bool], seconds: float = 20.0) -> None:
        async with asyncio.timeout(seconds), self.changed:
            await self.changed.wait_for(holds)

    async def until_phase(self, identity: str, phase: str, seconds: float = 20.0) -> Observed:
        await self.until(lambda: identity in self.observed and self.observed[identity][1].phase == phase, seconds)
        return self.observed[identity][1]

    def phases(self, identity: str) -> list[str]:
        return [observed.phase for observed in self.history if observed.id == identity]

    async def heard(self) -> None:
        """Until the joblet has said something more."""
        async with asyncio.timeout(20), self.changed:
            await self.changed.wait()

    async def notify(self) -> None:
        async with self.changed:
            self.changed.notify_all()

    def next_revision(self) -> int:
        self.revision += 1
        return self.revision

    def say(self, *messages: Out) -> None:
        for queue in self.outputs:
            queue.put_nowait(list(messages))

    def assign(self, fulfilment: Fulfilment) -> None:
        self.next_revision()
        self.desired[fulfilment.id] = fulfilment
        self.say(self.assignment(fulfilment.id))

    def withdraw(self, identity: str) -> None:
        self.forget(identity)
        self.say(Out(withdraw=joblets_pb2.Withdraw(id=identity, revision=self.revision)))

    def forget(self, identity: str) -> None:
        """Without a word to those who are connected."""
        self.next_revision()
        self.desired.pop(identity, None)
        self.observed.pop(identity, None)

    def assignment(self, identity: str) -> Out:
        assign = joblets_pb2.Assign(fulfilment=payload.encode(self.desired[identity]), revision=self.revision)
        if identity in self.observed:
            revision, observed = self.observed[identity]
            assign.observed, assign.observed_revision = payload.encode(observed), revision
        return Out(assign=assign)

    def full_list(self) -> list[Out]:
        synced = Out(synced=joblets_pb2.Synced(revision=self.revision))
        return [*(self.assignment(identity) for identity in self.desired), synced]

    def join(self, hello: joblets_pb2.Hello) -> None:
        if self.removed:
            raise errors.NotFound("the target was deleted")
        if not self.shared and self.secret is not None and self.secret != hello.instance_secret:
            raise errors.AlreadyExists("another joblet holds the target")
        if hello.session and hello.session != self.session:
            raise errors.StaleAttempt("that session is over")
        self.secret = hello.instance_secret
        if not hello.session:
            self.sessions += 1
            self.session = f"session-{self.sessions}"

    def store(self, report: joblets_pb2.Report) -> joblets_pb2.ReportAck | None:
        observed = payload.observed(report.observed)
        self.received.append(observed)
        answer = self.answers.pop(0) if self.answers else ""
        ack = joblets_pb2.ReportAck(id=observed.id, report=observed.report)
        if answer == "deaf":
            return None
        if answer not in ("", "lost", "Conflict"):
            ack.code = answer
            return ack
        revision, stored = self.observed.get(observed.id, (0, None))
        if answer == "Conflict" and revision == report.base_revision:
            self.observed[observed.id] = (self.next_revision(), observed)
            self.history.append(observed)
            revision, stored = self.observed[observed.id]
        if observed.session != self.session:
            ack.code = "StaleAttempt"
        elif observed.id not in self.desired:
            ack.code = "NotFound"
        elif revision != report.base_revision:
            ack.code, ack.observed_revision = "Conflict", revision
            if stored is not None:
                ack.stored = payload.encode(stored)
        else:
            self.observed[observed.id] = (self.next_revision(), observed)
            self.history.append(observed)
            ack.observed_revision = ack.revision = self.revision
        if answer == "lost":
            return joblets_pb2.ReportAck(id=observed.id, report=observed.report, code="OutcomeUnknown")
        return ack


class Joblets(joblets_pb2_grpc.JobletsServicer):
    def __init__(self, name: str, world: World) -> None:
        self._name = name
        self._world = world
        self.streams = 0

    async def Connect(
        self,
        request_iterator: AsyncIterator[joblets_pb2.JobletBatch],
        context: grpc.aio.ServicerContext[joblets_pb2.JobletBatch, joblets_pb2.ReplicaBatch],
    ) -> AsyncIterator[joblets_pb2.ReplicaBatch]:
        world = self._world
        first = await anext(aiter(request_iterator))
        hello = first.messages[0].hello
        world.hellos.append(hello)
        await world.notify()
        try:
            world.join(hello)
        except errors.ControlPlaneError as error:
            context.set_trailing_metadata(trailing_metadata(error))
            await context.abort(code_of(error), str(error))
        if hello.cluster != world.cluster and (hello.cluster or world.restored):
            over = Out(welcome=joblets_pb2.Welcome(cluster=world.cluster, start_over=True))
            yield joblets_pb2.ReplicaBatch(messages=[over])
            return
        output: asyncio.Queue[list[Out] | None] = asyncio.Queue()
        welcome = joblets_pb2.Welcome(
            session=world.session,
            lease_seconds=world.lease_seconds,
            heartbeat_seconds=world.heartbeat_seconds,
            kill_grace_seconds=2,
            revision=world.revision,
            replica=self._name,
            cluster=world.cluster,
            restored=world.restored,
        )
        output.put_nowait([Out(welcome=welcome), *world.full_list()])
        world.outputs.add(output)
        self.streams += 1
        reader = asyncio.create_task(self._read(request_iterator, output))
        try:
            while (messages := await output.get()) is not None:
                if world.speaking:
                    yield joblets_pb2.ReplicaBatch(messages=messages)
        finally:
            world.outputs.discard(output)
            self.streams -= 1
            reader.cancel()

    async def _read(
        self, batches: AsyncIterator[joblets_pb2.JobletBatch], output: asyncio.Queue[list[Out] | None]
    ) -> None:
        async for batch in batches:
            answers = [answer for message in batch.messages if (answer := self._answer(message)) is not None]
            if answers:
                output.put_nowait(answers)
            await self._world.notify()
        output.put_nowait(None)

    def _answer(self, message: joblets_pb2.JobletMessage) -> Out | None:
        if message.WhichOneof("message") == "heartbeat":
            said = message.heartbeat
            self._world.leftovers.append(said.leftovers if said.HasField("leftovers") else None)
            beat = joblets_pb2.HeartbeatAck(number=said.number)
            return Out(heartbeat_ack=beat) if self._world.confirming else None
        ack = self._world.store(message.report)
        return Out(report_ack=ack) if ack is not None else None


class Targets(targets_pb2_grpc.TargetsServicer):
    def __init__(self, world: World) -> None:
        self._world = world

    async def Create(
        self,
        request: targets_pb2.Target,
        context: grpc.aio.ServicerContext[targets_pb2.Target, targets_pb2.TargetResponse],
    ) -> targets_pb2.TargetResponse:
        if request.name in self._world.targets:
            error = errors.AlreadyExists(f"target {request.name} is there")
            context.set_trailing_metadata(trailing_metadata(error))
            await context.abort(code_of(error), str(error))
        self._world.targets[request.name] = request
        return targets_pb2.TargetResponse(item=request)

    async def Watch(
        self,
        request: common_pb2.WatchRequest,
        context: grpc.aio.ServicerContext[common_pb2.WatchRequest, targets_pb2.TargetEvent],
    ) -> AsyncIterator[targets_pb2.TargetEvent]:
        """What is there, and what comes; of a target that goes nothing is told."""
        self._world.watched.append(request.name)
        await self._world.notify()
        yield targets_pb2.TargetEvent(type="sync")
        async with self._world.changed:
            await self._world.changed.wait_for(lambda: request.name in self._world.targets)
        yield targets_pb2.TargetEvent(type="put", object=self._world.targets[request.name])
        await asyncio.Event().wait()


class Replica:
    """One real server on a free port of the loopback."""

    def __init__(self, name: str, world: World) -> None:
        self._server = grpc.aio.server()
        self._joblets = Joblets(name, world)
        joblets_pb2_grpc.add_JobletsServicer_to_server(self._joblets, self._server)
        targets_pb2_grpc.add_TargetsServicer_to_server(Targets(world), self._server)  # type: ignore[abstract]
        self.port = self._server.add_insecure_port("127.0.0.1:0")

    @property
    def endpoint(self) -> str:
        return f"127.0.0.1:{self.port}"

    def serving(self) -> bool:
        return self._joblets.streams > 0

    async def start(self) -> None:
        await self._server.start()

    async def stop(self) -> None:
        await self._server.stop(0)


__all__ = ["ORDER", "Replica", "World", "a_fulfilment"]
