"""Replicas' APIs for tests: real services on loopback over a real etcd. Only leadership is set by hand."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import grpc

from controlplane.aio.clock import SystemClock, chance, wall_milliseconds
from controlplane.apiserver.access_book import AccessBook
from controlplane.apiserver.api_ports import ApiPorts, Reads, ReplicaIdentity, Writes
from controlplane.apiserver.audit import AuditLog
from controlplane.apiserver.commands.group_writer import GroupWriter
from controlplane.apiserver.credential_verifier import CredentialVerifier
from controlplane.apiserver.edge import grpc_services
from controlplane.apiserver.edge.access_gate import AccessGate
from controlplane.apiserver.edge.grpc_server import gate_ports
from controlplane.apiserver.edge.limited_server import LimitedServer
from controlplane.apiserver.joblets.joblet_streams import JobletStreams
from controlplane.apiserver.logs.log_broker import LogBroker
from controlplane.cache.ledgers import Ledgers
from controlplane.cache.reflector import Cache
from controlplane.cluster_key import ClusterKey
from controlplane.model.errors import ControlPlaneError, Refused
from controlplane.model.identity import Mint
from controlplane.model.leadership import Term
from controlplane.model.order import Counts, OrderStatus
from controlplane.sealing import NO_KEYS, Keyring
from controlplane.store import keys
from controlplane.store.channel import EtcdOptions
from controlplane.store.kv import Store
from controlplane.store.lease import Renewals
from controlplane.store.space_watch import SpaceWatch
from controlplane.wire.status_codes import from_rpc
from controlplane.wire.v1 import (
    cluster_pb2_grpc,
    cycles_pb2_grpc,
    fulfilments_pb2_grpc,
    jobs_pb2_grpc,
    orders_pb2,
    orders_pb2_grpc,
    packets_pb2_grpc,
    resources_pb2_grpc,
    rules_pb2_grpc,
    scalepolicies_pb2_grpc,
    secrets_pb2_grpc,
    targets_pb2_grpc,
)
from tests.component.leader_stage import Contents, item_of

mint = Mint(wall_milliseconds, chance)


class Leadership:
    """Stands in for the election at its port."""

    def __init__(self) -> None:
        self.term: Term | None = None
        self.mine = False
        self.off: dict[str, float] = {}

    def clocks_off(self) -> dict[str, float]:
        return self.off

    def leader(self) -> Term | None:
        return self.term

    async def step_down(self) -> int:
        if not self.mine or self.term is None:
            raise Refused("this replica does not lead")
        epoch, self.term, self.mine = self.term.epoch, None, False
        return epoch


@dataclass
class Api:
    """One replica's API and a client's stubs for it."""

    address: str
    store: Store
    cache: Cache
    leadership: Leadership
    space: SpaceWatch
    channel: grpc.aio.Channel
    reads: Reads
    audit: AuditLog

    def __post_init__(self) -> None:
        self.jobs: Any = jobs_pb2_grpc.JobsStub(self.channel)
        self.packets: Any = packets_pb2_grpc.PacketsStub(self.channel)
        self.resources: Any = resources_pb2_grpc.ResourcesStub(self.channel)
        self.targets: Any = targets_pb2_grpc.TargetsStub(self.channel)
        self.rules: Any = rules_pb2_grpc.RulesStub(self.channel)
        self.scalepolicies: Any = scalepolicies_pb2_grpc.ScalePoliciesStub(self.channel)
        self.secrets: Any = secrets_pb2_grpc.SecretsStub(self.channel)
        self.orders: Any = orders_pb2_grpc.OrdersStub(self.channel)
        self.fulfilments: Any = fulfilments_pb2_grpc.FulfilmentsStub(self.channel)
        self.cycles: Any = cycles_pb2_grpc.CyclesStub(self.channel)
        self.cluster: Any = cluster_pb2_grpc.ClusterStub(self.channel)

    async def write(self, contents: Contents) -> int:
        """As a leader and joblets would, in one transaction. Returns its revision when this replica has seen it."""
        revision = (await self.store.commit(item_of(contents))).revision
        await self.cache.reached(revision, 10)
        return revision

    async def finish(self, order: str, phase: str = "Succeeded") -> None:
        """Writes the status that a leader would."""
        status = OrderStatus(order=order, epoch=1, phase=phase, counts=Counts(succeeded=1))
        await self.write({keys.order_status(order): status})


@asynccontextmanager
async def an_api(
    endpoint: str,
    name: str = "replica-1",
    make_writer: Callable[[Store], GroupWriter] = GroupWriter,
    *,
    quota: int = 8 << 30,
    keyring: Keyring = NO_KEYS,
    options: Sequence[tuple[str, int]] = (),
    closed: bool = False,
    audit: str = "",
    cluster_key: ClusterKey | None = None,
    verifiers: Sequence[CredentialVerifier] = (),
) -> AsyncIterator[Api]:
    clock = SystemClock()
    store = Store(EtcdOptions(endpoints=(endpoint,)), clock)
    cache = Cache(store, clock)
    ledgers = Ledgers(cache)
    leadership = Leadership()
    space = SpaceWatch(store.channels, quota)
    ports = ApiPorts(
        reads=Reads(store, cache, ledgers),
        writes=Writes(make_writer(store), clock, Mint(wall_milliseconds, chance), space),
        replica=ReplicaIdentity(name, "test", name),
        election=leadership,
        renewals=Renewals(store.channels),
        keyring=keyring,
        closed=closed,
        cluster_key=cluster_key,
    )
    server = grpc.aio.server(options=options)
    broker = LogBroker()
    address = ""
    book = AccessBook(ports.reads, clock, cluster_key, lambda: address, verifiers) if closed else None
    log = AuditLog(audit, clock)
    log.start()
    limited = LimitedServer(server, AccessGate(gate_ports(ports, book, log)))
    grpc_services.register(limited, grpc_services.services(ports, broker, JobletStreams(ports, broker)))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    following = asyncio.create_task(cache.run())
    address = f"127.0.0.1:{port}"
    channel = grpc.aio.insecure_channel(address)
    try:
        await cache.reached(1, 10)
        yield Api(address, store, cache, leadership, space, channel, ports.reads, log)
    finally:
        await channel.close()
        await server.stop(0)
        await log.close()
        following.cancel()
        await asyncio.gather(following, return_exceptions=True)
        await store.close()


async def refusal(call: Any) -> ControlPlaneError:
    """The error that a client would raise; an answer is the test's failure."""
    try:
        answer = await call
    except grpc.aio.AioRpcError as error:
        return from_rpc(error)
    raise AssertionError(f"was not refused: {answer}")


def an_order(*, count: int = 1, identity: str = "", **fields: Any) -> orders_pb2.Order:
    """An order of one inline job; `packet` names one instead."""
    packet = fields.pop("packet", None)
    order = orders_pb2.Order(id=identity, **fields)
    if packet is not None:
        order.packet.name = packet
    else:
        part = order.packet.object.jobs.add(count=count)
        part.job.object.command.append("true")
    return order
