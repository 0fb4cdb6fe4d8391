"""The gRPC services of a replica: one table of every method and its handler.

A service of proto/ without a row, or a row without a service, is an error at the start of the replica.
"""

from __future__ import annotations

from controlplane.apiserver.api_ports import ApiPorts
from controlplane.apiserver.commands.access_commands import AccessCommands
from controlplane.apiserver.commands.apply import Applier
from controlplane.apiserver.commands.enrolment_commands import EnrolmentCommands
from controlplane.apiserver.commands.named_objects import NamedObjects
from controlplane.apiserver.commands.submit import Submissions
from controlplane.apiserver.edge import grpc_calls
from controlplane.apiserver.edge.access_methods import AccessMethods
from controlplane.apiserver.edge.cluster_methods import ClusterMethods
from controlplane.apiserver.edge.limited_server import LimitedServer
from controlplane.apiserver.edge.methods import Methods, duplex, streaming
from controlplane.apiserver.edge.object_services import object_services
from controlplane.apiserver.edge.order_methods import OrderMethods
from controlplane.apiserver.joblets.joblet_streams import JobletStreams
from controlplane.apiserver.logs.log_broker import LogBroker
from controlplane.apiserver.logs.log_reader import LogReaders
from controlplane.apiserver.queries.views.order_view import OrderView
from controlplane.apiserver.queries.views.owner_index import OrderIndex
from controlplane.apiserver.queries.views.waiting_reasons import Reasons
from controlplane.model.errors import Broken
from controlplane.wire.v1 import (
    access_pb2,
    cluster_pb2,
    cycles_pb2,
    events_pb2,
    fulfilments_pb2,
    joblets_pb2,
    jobs_pb2,
    logs_pb2,
    orders_pb2,
    packets_pb2,
    resources_pb2,
    rules_pb2,
    scalepolicies_pb2,
    secrets_pb2,
    targets_pb2,
)

_PACKAGE = "controlplane.v1"
_FILES = (
    access_pb2, cluster_pb2, cycles_pb2, events_pb2, fulfilments_pb2, joblets_pb2, jobs_pb2, logs_pb2, orders_pb2,
    packets_pb2, resources_pb2, rules_pb2, scalepolicies_pb2, secrets_pb2, targets_pb2,
)  # fmt: skip
# Every service of the API by its full name.
SERVICES = tuple(service.full_name for file in _FILES for service in file.DESCRIPTOR.services_by_name.values())


def services(ports: ApiPorts, broker: LogBroker, joblets: JobletStreams) -> dict[str, Methods]:
    """The methods of every service, by the full name of the service."""
    reads, writes = ports.reads, ports.writes
    submissions = Submissions(reads, writes, ports.election, ports.replica.id)
    index = OrderIndex(reads.cache)
    view = OrderView(reads.ledgers, index, Reasons(reads.ledgers, writes.clock))
    readers = LogReaders(reads, writes.clock, broker, view, ports.replica.incarnation)
    applier = Applier(reads, writes, submissions, ports.keyring)
    named = NamedObjects(reads, writes, ports.keyring)
    access = AccessCommands(reads, writes, ports.chance)
    enrolments = EnrolmentCommands(reads, writes, named, chance=ports.chance, record=ports.record)
    rows: dict[str, Methods] = {
        **object_services(reads, named, index),
        "Orders": OrderMethods(ports, submissions, view, readers).rows(),
        "Cluster": ClusterMethods(ports, applier, index).rows(),
        "Access": AccessMethods(access, enrolments).rows(),
        "Logs": {"Read": streaming(logs_pb2.ReadLogRequest, logs_pb2.LogPiece, readers.read_here)},
        "Joblets": {"Connect": duplex(joblets_pb2.JobletBatch, joblets_pb2.ReplicaBatch, joblets.connect)},
    }
    return {f"{_PACKAGE}.{name}": methods for name, methods in rows.items()}


def register(server: LimitedServer, services: dict[str, Methods]) -> None:
    """Adds the services to a server before its start."""
    if set(services) != set(SERVICES):
        raise Broken(f"services without a table, or tables without a service: {set(services) ^ set(SERVICES)}")
    for name, methods in services.items():
        server.add_registered_method_handlers(name, grpc_calls.rpc_handlers(name, methods))
