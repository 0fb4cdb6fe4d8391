"""Apiservers on a real etcd, and a raw gRPC client that plays the joblet."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import grpc

from controlplane.aio.clock import SystemClock, chance, wall_milliseconds
from controlplane.apiserver.api_ports import ApiPorts, Reads, ReplicaIdentity, Writes
from controlplane.apiserver.commands.group_writer import GroupWriter
from controlplane.apiserver.edge.grpc_server import ApiServer
from controlplane.cache.ledgers import Ledgers
from controlplane.cache.reflector import Cache
from controlplane.model.errors import ControlPlaneError, Refused
from controlplane.model.fulfilment import Fulfilment, Observed, ObservedTask, TaskRef
from controlplane.model.identity import Mint
from controlplane.model.leadership import Term
from controlplane.model.settings import Settings
from controlplane.model.target import Live, Target
from controlplane.store import codec, keys, transaction
from controlplane.store.channel import EtcdOptions
from controlplane.store.kv import Store
from controlplane.store.lease import Renewals
from controlplane.store.space_watch import SpaceWatch
from controlplane.store.transaction import Item, Value
from controlplane.tls_files import TlsSource
from controlplane.wire import payload
from controlplane.wire import status_codes as wire_errors
from controlplane.wire.v1 import joblets_pb2, joblets_pb2_grpc
from controlplane.wire.v1.joblets_pb2 import JobletMessage
from tests.etcd import Etcd

PATIENCE_SECONDS = 15.0
TARGET = "edge-1"
SECRET = "the secret in the folder of one joblet"
MINT = Mint(wall_milliseconds, chance)


class Ballot:
    """Stands for the election: who leads is what the test says."""

    def __init__(self) -> None:
        self.term: Term | None = None

    def leader(self) -> Term | None:
        return self.term

    def clocks_off(self) -> dict[str, float]:
        return {}

    async def step_down(self) -> int:
        raise Refused("this replica does not lead")


class Api:
    """The apiserver of one replica with its own connection to etcd and its own cache."""

    def __init__(self, etcd: Etcd, name: str, *, closed: bool = False, tls: TlsSource | None = None) -> None:
        clock = SystemClock()
        self.store = Store(EtcdOptions((etcd.endpoint,), timeout_seconds=1.5), clock)
        self.cache = Cache(self.store, clock)
        self.renewals = Renewals(self.store.channels)
        self.ballot = Ballot()
        space = SpaceWatch(self.store.channels, 2 << 30)
        self.ports = ApiPorts(
            reads=Reads(self.store, self.cache, Ledgers(self.cache)),
            writes=Writes(GroupWriter(self.store), clock, MINT, space),
            replica=ReplicaIdentity(name, "1", f"{name}-life-1"),
            election=self.ballot,
            renewals=self.renewals,
            closed=closed,
            tls=tls,
        )
        self.server = ApiServer(self.ports, grpc_address="127.0.0.1:0", http_address="127.0.0.1:0")
        self._following: asyncio.Task[None] | None = None
        self._tasks: list[asyncio.Task[None]] = []

    async def start(self) -> None:
        await self.server.start()
        self._tasks.append(asyncio.create_task(self.renewals.run()))

    async def follow(self) -> None:
        self._following = asyncio.create_task(self.cache.run())
        await self.cache.reached(1, PATIENCE_SECONDS)

    async def fall_behind(self) -> None:
        """From now on its cache hears of nothing; it has heard of the sessions before, for which their streams wait."""
        assert self._following is not None
        await self.cache.reached(await self.store.revision(), PATIENCE_SECONDS)
        self._following.cancel()
        await asyncio.gather(self._following, return_exceptions=True)

    async def close(self) -> None:
        await self.server.stop()
        tasks = [task for task in (*self._tasks, self._following) if task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self.store.close()

    # What users and the leader would write

    async def put(self, key: str, value: bytes) -> int:
        """Returns once this replica's cache has it, unless it does not follow."""
        outcome = await self.store.commit(Item((), (transaction.put(key, value),)))
        if self._following is not None and not self._following.done():
            await self.cache.reached(outcome.revision, PATIENCE_SECONDS)
        return outcome.revision

    async def a_target(self, name: str = TARGET) -> str:
        await self.put(keys.config("targets", name), codec.encode(Target(name=name, driver="simulated")))
        return name

    async def set(self, **settings: Any) -> None:
        await self.put(keys.SETTINGS, codec.encode(Settings(**settings)))

    async def desire(self, *, target: str = TARGET, **fields: Any) -> Fulfilment:
        fulfilment = a_fulfilment(target=target, **fields)
        await self.put(keys.desired(target, fulfilment.id), codec.encode(fulfilment))
        return fulfilment

    async def withdraw(self, fulfilment: Fulfilment) -> None:
        key = keys.desired(fulfilment.target, fulfilment.id)
        await self.store.commit(Item((), (transaction.delete(key),)))

    async def live(self, target: str = TARGET) -> tuple[Value, Live] | None:
        stored = await self.store.get(keys.live(target))
        return (stored, codec.decode(stored.value, Live)) if stored is not None else None

    async def inventory(self, fulfilment: Fulfilment) -> tuple[int, Observed] | None:
        stored = await self.store.get(keys.observed(fulfilment.target, fulfilment.id))
        return (stored.mod_revision, codec.decode(stored.value, Observed)) if stored is not None else None


def a_fulfilment(*, target: str = TARGET, **fields: Any) -> Fulfilment:
    given: dict[str, Any] = {
        "id": MINT.make(),
        "epoch": 1,
        "cycle": 1,
        "order": MINT.make(),
        "target": target,
        "tasks": (TaskRef(job="render", index=0, attempt=1),),
    }
    return Fulfilment(**{**given, **fields})


class Talk:
    """One stream of a joblet, as the wire shows it."""

    def __init__(self, api: Api) -> None:
        self._channel = grpc.aio.insecure_channel(
            api.server.grpc_address, options=[("grpc.use_local_subchannel_pool", 1)]
        )
        self._call = joblets_pb2_grpc.JobletsStub(self._channel).Connect()
        self._waiting: deque[joblets_pb2.ReplicaMessage] = deque()
        self.session = ""

    async def send(self, *messages: JobletMessage) -> None:
        await self._call.write(joblets_pb2.JobletBatch(messages=messages))

    async def next(self) -> tuple[str, Any]:
        """The next message of the replica as (its kind, itself), with what is JSON in it read."""
        while not self._waiting:
            async with asyncio.timeout(PATIENCE_SECONDS):
                batch = await self._call.read()
            assert isinstance(batch, joblets_pb2.ReplicaBatch), "the stream ended"
            self._waiting.extend(batch.messages)
        message = self._waiting.popleft()
        kind = str(message.WhichOneof("message"))
        if kind == "assign":
            return kind, assigned(message.assign)
        if kind == "report_ack":
            return kind, answered(message.report_ack)
        return kind, getattr(message, kind)

    async def until(self, kind: str) -> Any:
        while True:
            found, message = await self.next()
            if found == kind:
                return message

    async def synced(self) -> list[Assigned]:
        """What the full list holds."""
        listed: list[Assigned] = []
        while True:
            kind, message = await self.next()
            if kind == "synced":
                return listed
            listed.append(message)

    async def report(self, fulfilment: Fulfilment, phase: str, base: int, **fields: Any) -> Any:
        """The answer to one report."""
        message = a_report(fulfilment, phase, base, **{"session": self.session, **fields})
        await self.send(message)
        number = fields.get("report", 1)
        while True:
            ack = await self.until("report_ack")
            if (ack.id, ack.report) == (fulfilment.id, number):
                return ack

    async def beat(self, number: int) -> None:
        await self.send(JobletMessage(heartbeat=joblets_pb2.Heartbeat(number=number)))
        while (await self.until("heartbeat_ack")).number != number:
            pass

    async def refusal(self) -> ControlPlaneError:
        """The error that the replica ends the stream with."""
        try:
            async with asyncio.timeout(PATIENCE_SECONDS):
                while await self._call.read() is not grpc.aio.EOF:
                    pass
        except grpc.aio.AioRpcError as error:
            return wire_errors.from_rpc(error)
        raise AssertionError(f"the stream ended with {await self._call.code()}")

    async def close(self) -> None:
        self._call.cancel()
        await self._channel.close()


@dataclass(frozen=True)
class Assigned:
    fulfilment: Fulfilment
    revision: int
    observed: Observed | None
    observed_revision: int


def assigned(message: joblets_pb2.Assign) -> Assigned:
    observed = payload.observed(message.observed) if message.observed else None
    return Assigned(payload.fulfilment(message.fulfilment), message.revision, observed, message.observed_revision)


@dataclass(frozen=True)
class Ack:
    id: str
    report: int
    code: str
    message: str
    observed_revision: int
    stored: Observed | None
    revision: int


def answered(ack: joblets_pb2.ReportAck) -> Ack:
    stored = payload.observed(ack.stored) if ack.stored else None
    return Ack(ack.id, ack.report, ack.code, ack.message, ack.observed_revision, stored, ack.revision)


def a_report(fulfilment: Fulfilment, phase: str, base: int, **fields: Any) -> JobletMessage:
    more = {"report": 1, "target": fulfilment.target, **fields}
    tasks = tuple(
        ObservedTask(
            job=task.job,
            index=task.index,
            attempt=more.get("attempt", task.attempt),
            phase=phase,
            message=more.get("message", ""),
            artefacts=tuple(more.get("artefacts", ())),
            **{name: more[name] for name in ("percent", "exit_code", "started", "finished") if name in more},
        )
        for task in fulfilment.tasks
    )
    observed = Observed(
        id=fulfilment.id,
        target=more["target"],
        session=more["session"],
        report=more["report"],
        phase=phase,
        tasks=tasks,
    )
    return JobletMessage(report=joblets_pb2.Report(observed=payload.encode(observed), base_revision=base))


def a_hello(**fields: Any) -> JobletMessage:
    given = {"target": TARGET, "driver": "simulated", "instance": "life-1", "instance_secret": SECRET, "version": "1"}
    return JobletMessage(hello=joblets_pb2.Hello(**{**given, "capacity": {"cpu": 4}, **fields}))


class Stage:
    def __init__(self, etcd: Etcd) -> None:
        self.etcd = etcd
        self._apis: list[Api] = []
        self._talks: list[Talk] = []

    async def an_api(self, *, follows: bool = True, closed: bool = False, tls: TlsSource | None = None) -> Api:
        api = Api(self.etcd, f"replica-{len(self._apis) + 1}", closed=closed, tls=tls)
        self._apis.append(api)
        if closed:
            # A replica knows its tokens before it serves.
            await api.follow()
        await api.start()
        if follows and not closed:
            await api.follow()
        return api

    async def a_talk(self, api: Api, *more: JobletMessage, **hello: Any) -> Talk:
        """A stream that said hello, and more in the same breath."""
        talk = Talk(api)
        self._talks.append(talk)
        await talk.send(a_hello(**hello), *more)
        return talk

    async def a_joblet(self, api: Api, **hello: Any) -> Talk:
        """A stream that was welcomed."""
        talk = await self.a_talk(api, **hello)
        talk.session = (await talk.until("welcome")).session
        return talk

    async def close(self) -> None:
        for talk in self._talks:
            await talk.close()
        for api in self._apis:
            await api.close()


@asynccontextmanager
async def staged(etcd: Etcd) -> AsyncIterator[Stage]:
    stage = Stage(etcd)
    try:
        yield stage
    finally:
        await stage.close()
