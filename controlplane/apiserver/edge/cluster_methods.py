"""The Cluster service: state of the control plane, leader and totals, whole files of objects, settings."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing

import grpc

from controlplane.apiserver import large_requests
from controlplane.apiserver.api_ports import ApiPorts
from controlplane.apiserver.call import Call
from controlplane.apiserver.commands.apply import MAX_BYTES, Applier
from controlplane.apiserver.commands.cluster_commands import FORWARDED, end_restore, step_down
from controlplane.apiserver.commands.settings_store import SettingsStore
from controlplane.apiserver.edge import object_messages
from controlplane.apiserver.edge.methods import ApiMethod, streaming, unary
from controlplane.apiserver.edge.object_messages import warned
from controlplane.apiserver.edge.object_methods import ReadMethods
from controlplane.apiserver.edge.sent_objects import wish_in
from controlplane.apiserver.fresh_reads import fresh
from controlplane.apiserver.queries.cluster_status import ClusterQueries, ClusterReport
from controlplane.apiserver.queries.views.owner_index import OrderIndex
from controlplane.apiserver.queries.views.term_view import TermView
from controlplane.model.errors import LimitExceeded
from controlplane.model.leadership import Term
from controlplane.model.order import Order
from controlplane.model.settings import Settings
from controlplane.model.totals import Totals
from controlplane.wire import convert, status_codes, transport
from controlplane.wire.v1 import cluster_pb2, cluster_pb2_grpc, common_pb2

FORWARD_SECONDS = 5.0


class ClusterMethods:
    def __init__(self, ports: ApiPorts, applier: Applier, index: OrderIndex) -> None:
        self._ports = ports
        self._applier = applier
        self._settings = SettingsStore(ports.reads, ports.writes)
        space, quarantine = ports.writes.space, ports.quarantine
        self._queries = ClusterQueries(
            ports.reads, ports.replica, ports.election, space=space, quarantine=quarantine, index=index
        )
        self._terms = ReadMethods(
            ports.reads.cache, TermView(), object_messages.TERMS, cluster_pb2.ListTermsResponse, cluster_pb2.TermEvent
        )

    def rows(self) -> dict[str, ApiMethod]:
        return {
            "Status": unary(cluster_pb2.StatusRequest, cluster_pb2.StatusResponse, self.status),
            "GetLeader": unary(cluster_pb2.LeaderRequest, cluster_pb2.Leader, self.get_leader),
            "WatchLeader": streaming(cluster_pb2.LeaderRequest, cluster_pb2.Leader, self.watch_leader),
            "StepDown": unary(cluster_pb2.StepDownRequest, cluster_pb2.StepDownResponse, self.step_down),
            "ListTerms": unary(common_pb2.ListRequest, cluster_pb2.ListTermsResponse, self._terms.list),
            "WatchTerms": streaming(common_pb2.WatchRequest, cluster_pb2.TermEvent, self._terms.watch),
            "EndRestore": unary(cluster_pb2.EndRestoreRequest, cluster_pb2.EndRestoreResponse, self.end_restore),
            "GetTotals": unary(cluster_pb2.TotalsRequest, cluster_pb2.Totals, self.get_totals),
            "WatchTotals": streaming(cluster_pb2.TotalsRequest, cluster_pb2.Totals, self.watch_totals),
            "Hash": unary(cluster_pb2.HashRequest, cluster_pb2.HashResponse, self.hash),
            "Apply": unary(cluster_pb2.ApplyRequest, cluster_pb2.ApplyResponse, self.apply),
            "GetSettings": unary(cluster_pb2.SettingsRequest, cluster_pb2.Settings, self.get_settings),
            "UpdateSettings": unary(cluster_pb2.Settings, cluster_pb2.SettingsResponse, self.update_settings),
        }

    async def status(self, call: Call, _request: cluster_pb2.StatusRequest) -> cluster_pb2.StatusResponse:
        return _status(await self._queries.status(call))

    async def get_leader(self, call: Call, _request: cluster_pb2.LeaderRequest) -> cluster_pb2.Leader:
        return _leader(await self._queries.leader(call))

    async def watch_leader(
        self, call: Call, _request: cluster_pb2.LeaderRequest
    ) -> AsyncGenerator[cluster_pb2.Leader, None]:
        async with aclosing(self._queries.watch_leader(call)) as leaders:
            async for term in leaders:
                yield _leader(term)

    async def step_down(self, call: Call, _request: cluster_pb2.StepDownRequest) -> cluster_pb2.StepDownResponse:
        epoch = await step_down(call, self._ports.replica, self._ports.election, self._forward)
        return cluster_pb2.StepDownResponse(epoch=epoch)

    async def _forward(self, term: Term) -> int:
        """Asks the leader with this replica's own credential: the caller's token never goes to an address of etcd."""
        metadata = ((FORWARDED, "1"), *transport.credentials(self._ports.peer_credential(term.grpc)))
        async with transport.ChannelOpener(self._ports.tls).open(term.grpc) as channel:
            stub = cluster_pb2_grpc.ClusterStub(channel)
            try:
                answer = await stub.StepDown(cluster_pb2.StepDownRequest(), timeout=FORWARD_SECONDS, metadata=metadata)
            except grpc.aio.AioRpcError as error:
                raise status_codes.from_rpc(error) from None
        return answer.epoch

    async def end_restore(self, call: Call, _request: cluster_pb2.EndRestoreRequest) -> cluster_pb2.EndRestoreResponse:
        ended = await end_restore(call, self._ports.reads, self._ports.writes)
        return cluster_pb2.EndRestoreResponse(revision=ended.revision, not_reported=ended.not_reported)

    async def get_totals(self, call: Call, _request: cluster_pb2.TotalsRequest) -> cluster_pb2.Totals:
        return _totals(await self._queries.totals(call))

    async def watch_totals(
        self, call: Call, _request: cluster_pb2.TotalsRequest
    ) -> AsyncGenerator[cluster_pb2.Totals, None]:
        async with aclosing(self._queries.watch_totals(call)) as changes:
            async for totals in changes:
                yield _totals(totals)

    async def hash(self, call: Call, _request: cluster_pb2.HashRequest) -> cluster_pb2.HashResponse:
        revision, digest, keys = await self._queries.hash(call)
        return cluster_pb2.HashResponse(revision=revision, hash=digest, keys=keys)

    async def apply(self, call: Call, request: cluster_pb2.ApplyRequest) -> cluster_pb2.ApplyResponse:
        if request.ByteSize() > MAX_BYTES:
            raise LimitExceeded(f"objects: must not be above {MAX_BYTES} bytes together", field="objects")
        await fresh(self._ports.reads.cache, call)
        wishes = await large_requests.run(
            lambda: [
                wish_in(call.subject, message, f"objects[{position}]")
                for position, message in enumerate(request.objects)
            ]
        )
        done = await self._applier.apply(call, wishes)
        answer = cluster_pb2.ApplyResponse(revision=done.revision)
        for applied in done.objects:
            item = applied.item
            kind = str(type(item).__struct_config__.tag)
            name = "" if isinstance(item, Order | Settings) else item.name
            identity = "" if isinstance(item, Settings) else item.id
            answer.items.add(kind=kind, name=name, id=identity, result=applied.result)
        return warned(answer, done.warnings)

    async def get_settings(self, call: Call, _request: cluster_pb2.SettingsRequest) -> cluster_pb2.Settings:
        snapshot = await fresh(self._ports.reads.cache, call)
        return _settings(*self._settings.read(snapshot))

    async def update_settings(self, call: Call, request: cluster_pb2.Settings) -> cluster_pb2.SettingsResponse:
        settings = await large_requests.run(lambda: convert.to_model(request, Settings))
        stored, revision = await self._settings.update(call, settings, request.revision)
        return cluster_pb2.SettingsResponse(revision=revision, item=_settings(stored, revision))


def _settings(settings: Settings, revision: int) -> cluster_pb2.Settings:
    message = convert.to_wire(settings, cluster_pb2.Settings)
    message.revision = revision
    return message


def _totals(totals: Totals) -> cluster_pb2.Totals:
    return convert.to_wire(totals, cluster_pb2.Totals)


def _leader(term: Term | None) -> cluster_pb2.Leader:
    if term is None:
        return cluster_pb2.Leader()
    return cluster_pb2.Leader(id=term.id, epoch=term.epoch, since=term.since, grpc=term.grpc, http=term.http)


def _status(report: ClusterReport) -> cluster_pb2.StatusResponse:
    answer = cluster_pb2.StatusResponse(
        id=report.replica.id,
        version=report.replica.version,
        revision=report.revision,
        leader=_leader(report.leader),
        orders=report.orders,
        targets=report.targets,
        keys=report.keys,
        poisoned=report.poisoned,
        poisoned_keys=[cluster_pb2.PoisonedKey(key=key, rule=rule) for key, rule in report.poisoned_keys],
        repaired=report.repaired,
        cache_age_seconds=report.cache_age_seconds,
        totals=_totals(report.totals),
        archive_error=report.archive_error,
        isolated=report.isolated,
    )
    for replica in report.replicas:
        message = convert.to_wire(replica.candidate, cluster_pb2.Replica)
        message.leads = replica.leads
        if replica.clock_off is not None:
            message.clock_off = replica.clock_off
        answer.replicas.append(message)
    space = report.space
    if space is not None:
        answer.etcd.CopyFrom(
            cluster_pb2.EtcdSpace(
                cluster_id=space.cluster_id,
                version=space.version,
                size=space.size,
                in_use=space.in_use,
                quota=space.quota,
                alarm=space.alarm,
                level=space.level,
                why=space.sentence(),
            )
        )
    if report.restoring is not None:
        answer.restoring.since = report.restoring.since
        answer.restoring.waiting_for.extend(report.restoring.waiting_for)
    for key in report.isolated_keys:
        answer.isolated_keys.add(
            kind=key.about.kind,
            name=key.about.name,
            part=key.part,
            error=key.error,
            count=key.count,
            since=key.since,
            again=key.again,
        )
    return answer
