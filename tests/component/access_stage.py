"""A closed plane for tests of access: credentials of every sort, and calls of any method by its descriptor.

`Work` is the work of one owner: an object of each kind, and a waiting, a running, a held, a finished and a recurring
order. Every text of it that an owner may choose holds the owner's mark.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple, cast

import grpc
from google.protobuf import descriptor_pool, message_factory
from google.protobuf.descriptor import MethodDescriptor
from google.protobuf.message import Message
from msgspec.structs import replace

from controlplane.aio.clock import chance
from controlplane.apiserver.credential_verifier import CredentialVerifier
from controlplane.apiserver.edge import grpc_services
from controlplane.cluster_key import ClusterKey
from controlplane.model import times
from controlplane.model.access import SECRET_BYTES, Binding, Token, token_digest, token_text
from controlplane.model.event import About, Event
from controlplane.model.fulfilment import TaskSpec
from controlplane.model.leadership import Cycle, Term
from controlplane.model.order import Counts, OrderStatus
from controlplane.model.rule import Effect, Rule
from controlplane.model.scalepolicy import ScalePolicy
from controlplane.model.secret import Secret
from controlplane.model.target import Live, Target, TargetStatus
from controlplane.sealing import Key, Keyring
from controlplane.store import keys
from controlplane.wire import transport
from controlplane.wire.v1 import jobs_pb2, orders_pb2, packets_pb2, resources_pb2
from tests.builders import NOW, FulfilmentBuilder
from tests.component.api_stage import Api, an_api, mint
from tests.component.leader_stage import Contents
from tests.etcd import Etcd

KEY = ClusterKey(b"k" * 32)
KEYRING = Keyring((Key(b"s" * 32),), chance)
ANSWER_SECONDS = 20.0
TARGET, OTHER_TARGET = "edge-1", "edge-2"


def methods() -> list[MethodDescriptor]:
    """Every method of every service of the API."""
    pool = descriptor_pool.Default()
    return [method for name in grpc_services.SERVICES for method in pool.FindServiceByName(name).methods]


def method_of(name: str) -> MethodDescriptor:
    """By `Service.Method`."""
    return descriptor_pool.Default().FindMethodByName(f"controlplane.v1.{name}")


class Answer(NamedTuple):
    """The status of a call, and all messages that came before the status, or until a stream was cancelled."""

    code: grpc.StatusCode
    details: str
    messages: list[Any]

    @property
    def text(self) -> str:
        return f"{self.code.name}: {self.details}\n" + "\n".join(map(str, self.messages))


async def ask(
    channel: grpc.aio.Channel, method: MethodDescriptor, requests: Sequence[Message], metadata: transport.Metadata
) -> Answer:
    """Calls a method. An endless stream is read until its `sync`, or its first message where there is none."""
    while True:
        answer = await _ask(channel, method, requests, metadata)
        # The client's own word for a request that it was sending when the refusal came: the status is lost.
        if (answer.code, answer.details) != (grpc.StatusCode.INTERNAL, "Internal error from Core"):
            return answer


async def _ask(
    channel: grpc.aio.Channel, method: MethodDescriptor, requests: Sequence[Message], metadata: transport.Metadata
) -> Answer:
    answer_class = message_factory.GetMessageClass(method.output_type)
    path = f"/{method.containing_service.full_name}/{method.name}"
    call: Any
    if method.client_streaming:
        call = channel.stream_stream(path, _serialise, answer_class.FromString)(metadata=metadata)
    elif method.server_streaming:
        call = channel.unary_stream(path, _serialise, answer_class.FromString)(requests[0], metadata=metadata)
    else:
        call = channel.unary_unary(path, _serialise, answer_class.FromString)(requests[0], metadata=metadata)
    got: list[Any] = []
    try:
        async with asyncio.timeout(ANSWER_SECONDS):
            if not method.server_streaming:
                got.append(await call)
                return Answer(await call.code(), "", got)
            if method.client_streaming:
                for request in requests:
                    await call.write(request)
                await call.done_writing()
            while (message := await call.read()) is not grpc.aio.EOF:
                got.append(message)
                if getattr(message, "type", "sync") == "sync" and method.name != "Logs":
                    call.cancel()
                    return Answer(grpc.StatusCode.OK, "", got)
            return Answer(await call.code(), await call.details(), got)
    except grpc.aio.AioRpcError as error:
        return Answer(error.code(), error.details() or "", got)
    except asyncio.InvalidStateError:
        # The replica ended the call before all requests were sent.
        return Answer(await stream_end(call), await call.details() or "", got)


async def stream_end(call: Any) -> grpc.StatusCode:
    """The status that the replica ends a stream with. gRPC tells it only when all messages before it have been read."""
    with suppress(grpc.aio.AioRpcError):
        while await call.read() is not grpc.aio.EOF:
            pass
    return cast(grpc.StatusCode, await call.code())


def _serialise(message: Message) -> bytes:
    return message.SerializeToString()


class Plane:
    """A closed replica. Tokens are written as another replica would have made them."""

    def __init__(self, api: Api) -> None:
        self.api = api

    async def ask(self, name: str, request: Message | Sequence[Message], token: str = "") -> Answer:
        """Calls `Service.Method` with a token."""
        requests = [request] if isinstance(request, Message) else request
        return await ask(self.api.channel, method_of(name), requests, transport.credentials(token))

    async def token(self, subject: str, *roles: str, expires_in: float | None = None, **fields: Any) -> str:
        return (await self.token_record(subject, *roles, expires_in=expires_in, **fields))[1]

    async def token_record(
        self, subject: str, *roles: str, expires_in: float | None = None, **fields: Any
    ) -> tuple[Token, str]:
        text = token_text(chance(SECRET_BYTES))
        expires = "" if expires_in is None else times.show(datetime.now(UTC) + timedelta(seconds=expires_in))
        given = {"id": mint.make(), "subject": subject, "roles": roles, "expires": expires, **fields}
        token = Token(digest=token_digest(text), **given)
        await self.api.write({f"{keys.TOKENS.prefix}{token.id}": token})
        return token, text

    async def revoke(self, token: Token) -> None:
        await self.api.write({f"{keys.TOKENS.prefix}{token.id}": None})

    async def bind(self, name: str, role: str, **fields: str) -> None:
        await self.api.write({f"{keys.BINDINGS.prefix}{name}": Binding(name=name, role=role, **fields)})


@asynccontextmanager
async def a_plane(
    etcd: Etcd, name: str = "replica-1", *, verifiers: Sequence[CredentialVerifier] = ()
) -> AsyncIterator[Plane]:
    async with an_api(etcd.endpoint, name, closed=True, cluster_key=KEY, keyring=KEYRING, verifiers=verifiers) as api:
        yield Plane(api)


def mark(owner: str) -> str:
    return f"{owner}-secret-7f3a"


@dataclass(frozen=True)
class Work:
    """The names and identities of an owner's work, which are the same on every plane where it is done."""

    owner: str
    waiting: str = field(default_factory=mint.make)
    running: str = field(default_factory=mint.make)
    held: str = field(default_factory=mint.make)
    finished: str = field(default_factory=mint.make)
    recurring: str = field(default_factory=mint.make)
    fulfilment: str = field(default_factory=mint.make)
    event: str = field(default_factory=mint.make)
    other_ids: tuple[str, ...] = field(default_factory=lambda: tuple(mint.make() for _ in range(8)))

    @property
    def mark(self) -> str:
        return mark(self.owner)

    @property
    def labels(self) -> dict[str, str]:
        return {"team": self.mark}

    @property
    def orders(self) -> tuple[str, ...]:
        return self.waiting, self.running, self.held, self.finished, self.recurring

    @property
    def identities(self) -> tuple[str, ...]:
        return (*self.orders, self.fulfilment, self.event, *self.other_ids)

    def resource(self, **more: Any) -> resources_pb2.Resource:
        given: dict[str, Any] = {"name": f"{self.mark}-resource", "id": self.other_ids[0], "labels": self.labels}
        return resources_pb2.Resource(**given | {"key": "LICENCE", "value": self.mark, "unique": True} | more)

    def job(self, **more: Any) -> jobs_pb2.Job:
        given: dict[str, Any] = {"name": f"{self.mark}-job", "id": self.other_ids[1], "labels": self.labels}
        given |= {"command": ["run", self.mark], "env": {"TOKEN": self.mark}, "image": self.mark}
        return jobs_pb2.Job(**given | more)

    def packet(self, **more: Any) -> packets_pb2.Packet:
        given: dict[str, Any] = {"name": f"{self.mark}-packet", "id": self.other_ids[2], "labels": self.labels}
        packet = packets_pb2.Packet(**given | more)
        packet.jobs.add(count=1).job.name = f"{self.mark}-job"
        packet.resources.append(f"{self.mark}-resource")
        return packet

    def order(self, identity: str = "", *, cpu: float = 1, **more: Any) -> orders_pb2.Order:
        order = orders_pb2.Order(id=identity, labels=self.labels, **more)
        order.packet.object.name = f"{self.mark}-inline"
        job = order.packet.object.jobs.add(count=1).job.object
        job.CopyFrom(self.job(name=f"{self.mark}-step", id=""))
        job.requests.of["cpu"] = cpu
        return order

    async def begin(self, plane: Plane, token: str) -> None:
        """Creates the objects and orders as the owner, then writes what a leader and joblets would."""
        for method, request in (
            ("Resources.Create", self.resource()),
            ("Jobs.Create", self.job()),
            ("Packets.Create", self.packet()),
            (
                "Orders.Submit",
                orders_pb2.Order(id=self.waiting, packet=orders_pb2.PacketRef(name=f"{self.mark}-packet")),
            ),
            *(("Orders.Submit", self.order(identity)) for identity in (self.running, self.held, self.finished)),
            ("Orders.Submit", self.order(self.recurring, schedule=orders_pb2.Schedule(cron="0 5 * * *"))),
        ):
            answer = await plane.ask(method, request, token)
            assert answer.code is grpc.StatusCode.OK, (method, answer)
        await plane.api.write(self.progress())

    def progress(self) -> Contents:
        def attempt(order: str, identity: str) -> FulfilmentBuilder:
            return FulfilmentBuilder(order, TARGET, identity).task(0, job=f"{self.mark}-step")

        running, held, finished = (
            attempt(self.running, self.fulfilment),
            attempt(self.held, self.other_ids[3]),
            attempt(self.finished, self.other_ids[4]),
        )
        spec = TaskSpec(command=("run", self.mark), environment={"TOKEN": self.mark})
        placed = replace(running.build(), owner=self.owner, jobs={f"{self.mark}-step": spec})
        event = Event(
            id=self.event,
            about=About(kind="Order", name=self.running),
            reason="Held",
            message=f"about {self.mark}",
            by=self.owner,
            first=NOW,
            last=NOW,
            owner=self.owner,
        )
        return {
            keys.desired(TARGET, self.fulfilment): placed,
            keys.observed(TARGET, self.fulfilment): running.observed("Running", message=self.mark),
            keys.order_status(self.running): _status(self.running, "Running", running=1),
            keys.ended(self.held, self.other_ids[3]): held.ended("hold", reason=self.mark),
            keys.order_status(self.held): _status(self.held, "Running", held=1),
            keys.ended(self.finished, self.other_ids[4]): finished.ended("done", reason=self.mark),
            keys.order_status(self.finished): _status(self.finished, "Succeeded", succeeded=1),
            keys.event(self.event): event,
        }


def _status(order: str, phase: str, **counts: int) -> OrderStatus:
    return OrderStatus(order=order, epoch=1, phase=phase, counts=Counts(**counts))


def plane_objects(*, busy: int = 0) -> Contents:
    """Objects of the plane, which belong to nobody. `busy`: the attempts of all owners on the target."""
    live = Live(
        target=TARGET,
        session="1",
        instance="i",
        secret_digest="",
        driver="process",
        capacity={"cpu": 1000},
        stats={"running": busy, "desired": busy},
        leftovers=busy,
        reported=NOW,
    )
    status = TargetStatus(target=TARGET, epoch=1, phase="Ready", used={"cpu": busy}, free={"cpu": 1000 - busy})
    cycle = Cycle(
        epoch=1, n=1, revision=1, now=NOW, seed=1, settings_digest="", engine="", considered=0, placed=0, seconds=0,
        hash="",
    )  # fmt: skip
    return {
        keys.config("targets", TARGET): Target(name=TARGET, driver="process", owner="plane"),
        keys.config("targets", OTHER_TARGET): Target(name=OTHER_TARGET, driver="process", owner="plane"),
        keys.live(TARGET): live,
        keys.target_status(TARGET): status,
        keys.config("rules", "plane-rule"): Rule(name="plane-rule", when="order.priority > 99", then=Effect(prefer=1)),
        keys.config("scalepolicies", "plane-policy"): ScalePolicy(
            name="plane-policy", provider="local", metric="queue", threshold=5, max=3
        ),
        keys.config("secrets", "plane-secret"): Secret(name="plane-secret", type="kubeconfig"),
        keys.term(1): Term(epoch=1, id="replica-1", since=NOW),
        keys.cycle(1, 1): cycle,
    }
