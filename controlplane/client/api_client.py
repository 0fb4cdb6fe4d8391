"""`Client`: built from endpoints, with an attribute for every service of the control plane."""

from __future__ import annotations

from collections.abc import Sequence
from types import TracebackType

from controlplane.aio import clock as real
from controlplane.aio.clock import Clock, SystemClock
from controlplane.client.caller import Caller, CallTimeouts
from controlplane.client.channels import ChannelPool, FindToken, ListEndpoints
from controlplane.client.service_calls import AccessCalls, ClusterCalls, NamedCalls, OrderCalls, ReadCalls, TermCalls
from controlplane.model.identity import Mint
from controlplane.wire.transport import opener_for
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
    """A client lives on a single event loop and is entered and left there.

    `endpoints` is a list of `host:port`, or a function that returns such a list and is called whenever a connection is
    chosen. `token` is the text of a token, or a function that returns one and is called with each call. `ca_file` holds
    the CA certificates of replicas that serve TLS. `mint` makes the identities of submitted orders.
    """

    def __init__(
        self,
        endpoints: Sequence[str] | ListEndpoints,
        *,
        token: str | FindToken = "",
        ca_file: str = "",
        timeouts: CallTimeouts | None = None,
        clock: Clock | None = None,
    ) -> None:
        timeouts = timeouts or CallTimeouts()
        fixed = () if callable(endpoints) else tuple(endpoints)
        list_endpoints: ListEndpoints = endpoints if callable(endpoints) else lambda: fixed
        find_token: FindToken = token if callable(token) else lambda: token
        connect_seconds = timeouts.connect_seconds
        opener = opener_for(ca_file)
        self._channels = ChannelPool(
            list_endpoints, connect_seconds=connect_seconds, find_token=find_token, opener=opener
        )
        self._caller = caller = Caller(self._channels, timeouts, clock or SystemClock())
        self.mint = Mint(real.wall_milliseconds, real.chance)
        self.jobs = NamedCalls(caller, JobsStub)
        self.packets = NamedCalls(caller, PacketsStub)
        self.resources = NamedCalls(caller, ResourcesStub)
        self.targets = NamedCalls(caller, TargetsStub)
        self.rules = NamedCalls(caller, RulesStub)
        self.scalepolicies = NamedCalls(caller, ScalePoliciesStub)
        self.secrets = NamedCalls(caller, SecretsStub)
        self.orders = OrderCalls(caller)
        self.fulfilments = ReadCalls(caller, FulfilmentsStub, "id")
        self.cycles = ReadCalls(caller, CyclesStub, "n")
        self.events = ReadCalls(caller, EventsStub, "id")
        self.terms = TermCalls(caller)
        self.cluster = ClusterCalls(caller)
        self.access = AccessCalls(caller)

    @property
    def revision(self) -> int:
        """The highest revision that a write answered with or a watch showed."""
        return self._caller.revision

    def leave_endpoint(self) -> None:
        """Prefers another endpoint from now on: for a reader that doubts the freshness of the endpoint in use."""
        self._channels.prefer_next()

    async def close(self) -> None:
        await self._channels.close()

    async def __aenter__(self) -> Client:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()
