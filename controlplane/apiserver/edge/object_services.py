"""The services of objects, as one table: the struct of each kind, and its messages on the wire."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import Any

from controlplane.apiserver.admission import fields
from controlplane.apiserver.api_ports import Reads
from controlplane.apiserver.authorisation import OWNED
from controlplane.apiserver.call import Call
from controlplane.apiserver.commands.named_objects import NamedObjects
from controlplane.apiserver.edge import object_messages as messages
from controlplane.apiserver.edge.methods import ApiMethod, Methods, streaming, unary
from controlplane.apiserver.edge.object_methods import E, L, N, NamedMethods, ReadMethods
from controlplane.apiserver.queries.views.event_view import EventView
from controlplane.apiserver.queries.views.fulfilment_view import FulfilmentView
from controlplane.apiserver.queries.views.named_view import NamedView, ScalePolicyView, ShownTarget, TargetView
from controlplane.apiserver.queries.views.object_view import Filter, sound
from controlplane.apiserver.queries.views.owner_index import OwnerIndex
from controlplane.apiserver.queries.views.term_view import CycleView
from controlplane.cache.snapshot import Snapshot
from controlplane.model.errors import Invalid
from controlplane.model.event import Event
from controlplane.model.job import Job
from controlplane.model.kinds import kind_of
from controlplane.model.lifecycle import TargetPhase
from controlplane.model.object import Named
from controlplane.model.packet import Packet
from controlplane.model.resource import Resource
from controlplane.model.rule import Rule
from controlplane.model.scalepolicy import ScalePolicy
from controlplane.model.secret import Secret, SecretWish
from controlplane.model.target import Target
from controlplane.store import keys
from controlplane.wire.v1 import (
    common_pb2,
    cycles_pb2,
    events_pb2,
    fulfilments_pb2,
    jobs_pb2,
    packets_pb2,
    resources_pb2,
    rules_pb2,
    scalepolicies_pb2,
    secrets_pb2,
    targets_pb2,
)


def object_services(reads: Reads, named: NamedObjects, orders: OwnerIndex) -> dict[str, Methods]:
    """The methods of each service, by the service's name."""
    cache = reads.cache
    jobs, packets, resources, rules = jobs_pb2, packets_pb2, resources_pb2, rules_pb2
    policies, secrets, targets = scalepolicies_pb2, secrets_pb2, targets_pb2
    fulfilments, cycles, events = fulfilments_pb2, cycles_pb2, events_pb2

    def plain(kind: type[Named], message: type[N], listing: type[L], event: type[E]) -> ReadMethods[Any, N, L, E]:
        index = OwnerIndex(cache, keys.tree_of(kind)) if kind_of(kind).word in OWNED else None
        return ReadMethods(cache, NamedView(kind, index), messages.named(message), listing, event)

    return {
        "Jobs": {
            **plain(Job, jobs.Job, jobs.ListJobsResponse, jobs.JobEvent).rows(),
            **NamedMethods(named, Job, jobs.Job, jobs.JobResponse).rows(),
        },
        "Packets": {
            **plain(Packet, packets.Packet, packets.ListPacketsResponse, packets.PacketEvent).rows(),
            **NamedMethods(named, Packet, packets.Packet, packets.PacketResponse).rows(),
        },
        "Resources": {
            **plain(Resource, resources.Resource, resources.ListResourcesResponse, resources.ResourceEvent).rows(),
            **NamedMethods(named, Resource, resources.Resource, resources.ResourceResponse).rows(),
        },
        "Rules": {
            **plain(Rule, rules.Rule, rules.ListRulesResponse, rules.RuleEvent).rows(),
            **NamedMethods(named, Rule, rules.Rule, rules.RuleResponse).rows(),
        },
        "Secrets": {
            **plain(Secret, secrets.Secret, secrets.ListSecretsResponse, secrets.SecretEvent).rows(),
            **NamedMethods(named, Secret, secrets.Secret, secrets.SecretResponse, sent=SecretWish).rows(),
        },
        "ScalePolicies": {
            **ReadMethods(
                cache,
                ScalePolicyView(),
                messages.SCALE_POLICIES,
                policies.ListScalePoliciesResponse,
                policies.ScalePolicyEvent,
            ).rows(),
            **NamedMethods(named, ScalePolicy, policies.ScalePolicy, policies.ScalePolicyResponse).rows(),
        },
        "Targets": {
            **TargetMethods(
                cache, TargetView(), messages.TARGETS, targets.ListTargetsResponse, targets.TargetEvent
            ).rows(),
            **NamedMethods(named, Target, targets.Target, targets.TargetResponse).rows(),
        },
        "Fulfilments": ReadMethods(
            cache,
            FulfilmentView(reads.ledgers, orders),
            messages.FULFILMENTS,
            fulfilments.ListFulfilmentsResponse,
            fulfilments.FulfilmentEvent,
        ).rows(),
        "Cycles": ReadMethods(cache, CycleView(), messages.CYCLES, cycles.ListCyclesResponse, cycles.CycleEvent).rows(),
        "Events": EventMethods(
            cache,
            EventView(OwnerIndex(cache, keys.EVENTS)),
            messages.EVENTS,
            events.ListEventsResponse,
            events.EventChange,
        ).rows(),
    }


class EventMethods(ReadMethods[Event, events_pb2.Event, events_pb2.ListEventsResponse, events_pb2.EventChange]):
    """Events are listed and watched by the object they are about."""

    async def list_about(self, call: Call, request: events_pb2.ListEventsRequest) -> events_pb2.ListEventsResponse:
        return await self.page(call, _about(request), request)

    def watch_about(
        self, call: Call, request: events_pb2.WatchEventsRequest
    ) -> AsyncGenerator[events_pb2.EventChange, None]:
        return self.changes(call, _about(request, request.name))

    def rows(self) -> dict[str, ApiMethod]:
        return {
            "Get": unary(common_pb2.GetRequest, events_pb2.Event, self.get),
            "List": unary(events_pb2.ListEventsRequest, events_pb2.ListEventsResponse, self.list_about),
            "Watch": streaming(events_pb2.WatchEventsRequest, events_pb2.EventChange, self.watch_about),
        }


def _about(request: events_pb2.ListEventsRequest | events_pb2.WatchEventsRequest, name: str = "") -> Filter:
    if request.about_name and not request.about_kind:
        raise Invalid("about_kind", "must be given with about_name: names are unique within a kind only")
    return Filter(name=name, about_kind=request.about_kind, about_name=request.about_name)


class TargetMethods(
    ReadMethods[ShownTarget, targets_pb2.Target, targets_pb2.ListTargetsResponse, targets_pb2.TargetEvent]
):
    """Targets are listed by their phase, too."""

    async def list(self, call: Call, request: common_pb2.ListRequest) -> targets_pb2.ListTargetsResponse:
        if request.phase:
            fields.one_of(request.phase, tuple(TargetPhase), "phase")

        def show(snapshot: Snapshot, key: str) -> ShownTarget | None:
            seen = sound(self.view, snapshot, key)
            return seen.item if seen is not None and request.phase in ("", seen.item.phase) else None

        return await self.page(call, Filter(), request, show)
