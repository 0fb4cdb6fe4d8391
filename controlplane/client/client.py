"""The client: endpoints in, services out."""

from __future__ import annotations

from collections.abc import Sequence
from types import TracebackType

from controlplane.aio import clock as real
from controlplane.aio.clock import Clock, SystemClock
from controlplane.client.caller import Caller, Patience
from controlplane.client.channels import Channels, Source
from controlplane.client.services import Cluster, Named, Orders, Readable, Terms
from controlplane.model.identity import Mint
from controlplane.wire.v1.cycles_pb2_grpc import CyclesStub
from controlplane.wire.v1.events_pb2_grpc import EventsStub
from controlplane.wire.v1.fulfilments_pb2_grpc import FulfilmentsStub
from controlplane.wire.v1.jobs_pb2_grpc import JobsStub
from controlplane.wire.v1.packets_pb2_grpc import PacketsStub
from controlplane.wire.v1.resources_pb2_grpc import ResourcesStub
from controlplane.wire.v1.rules_pb2_grpc import RulesStub
from controlplane.wire.v1.scalepolicies_pb2_grpc import ScalePoliciesStub
from controlplane.wire.v1.secrets_pb2_grpc import SecretsStub
from controlplane.wire.v1.targets_pb2_grpc import TargetsStub


class Client:
    """Must live on one event loop, be entered there and left there.

    `endpoints` is a list of `host:port`, or a function that gives one: it is asked again whenever a connection is
    chosen. `mint` makes the identities that submits carry.
    """

    def __init__(
        self, endpoints: Sequence[str] | Source, *, patience: Patience | None = None, clock: Clock | None = None
    ) -> None:
        patience = patience or Patience()
        fixed = () if callable(endpoints) else tuple(endpoints)
        source: Source = endpoints if callable(endpoints) else lambda: fixed
        self._channels = Channels(source, connect_seconds=patience.connect_seconds)
        self._caller = caller = Caller(self._channels, patience, clock or SystemClock())
        self.mint = Mint(real.wall_milliseconds, real.chance)
        self.jobs = Named(caller, JobsStub)
        self.packets = Named(caller, PacketsStub)
        self.resources = Named(caller, ResourcesStub)
        self.targets = Named(caller, TargetsStub)
        self.rules = Named(caller, RulesStub)
        self.scalepolicies = Named(caller, ScalePoliciesStub)
        self.secrets = Named(caller, SecretsStub)
        self.orders = Orders(caller)
        self.fulfilments = Readable(caller, FulfilmentsStub, "id")
        self.cycles = Readable(caller, CyclesStub, "n")
        self.events = Readable(caller, EventsStub, "id")
        self.terms = Terms(caller)
        self.cluster = Cluster(caller)

    @property
    def revision(self) -> int:
        """The highest revision that a write answered with or a watch showed."""
        return self._caller.revision

    def leave_endpoint(self) -> None:
        """Prefers another endpoint from now on: for a reader who doubts that the one in use keeps up."""
        self._channels.turn()

    async def close(self) -> None:
        await self._channels.close()

    async def __aenter__(self) -> Client:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()
