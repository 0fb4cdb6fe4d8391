"""The gRPC services that users call, one file each: they translate, ask, and translate back."""

from __future__ import annotations

from controlplane.apiserver.applying import Applying
from controlplane.apiserver.dependencies import ApiDependencies
from controlplane.apiserver.reception import Reception
from controlplane.apiserver.services.cluster import Cluster
from controlplane.apiserver.services.cycles import Cycles
from controlplane.apiserver.services.events import Events
from controlplane.apiserver.services.fulfilments import Fulfilments
from controlplane.apiserver.services.jobs import Jobs
from controlplane.apiserver.services.logs import PeerLogs
from controlplane.apiserver.services.orders import Orders
from controlplane.apiserver.services.packets import Packets
from controlplane.apiserver.services.resources import Resources
from controlplane.apiserver.services.rules import Rules
from controlplane.apiserver.services.scalepolicies import ScalePolicies
from controlplane.apiserver.services.secrets import Secrets
from controlplane.apiserver.services.targets import Targets
from controlplane.apiserver.submission import Submissions
from controlplane.apiserver.views.order_index import OrderIndex
from controlplane.apiserver.views.orders import OrderView
from controlplane.apiserver.views.reasons import Reasons
from controlplane.wire.v1 import (
    cluster_pb2_grpc,
    cycles_pb2_grpc,
    events_pb2_grpc,
    fulfilments_pb2_grpc,
    jobs_pb2_grpc,
    logs_pb2_grpc,
    orders_pb2_grpc,
    packets_pb2_grpc,
    resources_pb2_grpc,
    rules_pb2_grpc,
    scalepolicies_pb2_grpc,
    secrets_pb2_grpc,
    targets_pb2_grpc,
)


def register(server: Reception, deps: ApiDependencies) -> None:
    """Adds every service of users to a server that has not started yet."""
    submissions = Submissions(deps)
    view = OrderView(deps.ledgers, OrderIndex(deps.cache), Reasons(deps.ledgers, deps.clock))
    jobs_pb2_grpc.add_JobsServicer_to_server(Jobs(deps), server)
    packets_pb2_grpc.add_PacketsServicer_to_server(Packets(deps), server)
    resources_pb2_grpc.add_ResourcesServicer_to_server(Resources(deps), server)
    targets_pb2_grpc.add_TargetsServicer_to_server(Targets(deps), server)
    rules_pb2_grpc.add_RulesServicer_to_server(Rules(deps), server)
    scalepolicies_pb2_grpc.add_ScalePoliciesServicer_to_server(ScalePolicies(deps), server)
    secrets_pb2_grpc.add_SecretsServicer_to_server(Secrets(deps), server)
    orders_pb2_grpc.add_OrdersServicer_to_server(Orders(deps, submissions, view), server)
    fulfilments_pb2_grpc.add_FulfilmentsServicer_to_server(Fulfilments(deps), server)
    cycles_pb2_grpc.add_CyclesServicer_to_server(Cycles(deps), server)
    logs_pb2_grpc.add_LogsServicer_to_server(PeerLogs(deps), server)
    events_pb2_grpc.add_EventsServicer_to_server(Events(deps), server)
    cluster_pb2_grpc.add_ClusterServicer_to_server(Cluster(deps, Applying(deps, submissions)), server)
