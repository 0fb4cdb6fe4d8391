"""The Cluster service: who leads and led, this replica's state, whole files of objects, the settings."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from itertools import islice
from typing import Any

import grpc

from controlplane.apiserver import showing_isolated, upkeep
from controlplane.apiserver.applying import MAX_BYTES, Applying
from controlplane.apiserver.dependencies import ApiDependencies
from controlplane.apiserver.guard import Context, answered, streamed
from controlplane.apiserver.listing import listed
from controlplane.apiserver.reading import fresh
from controlplane.apiserver.services.answers import warned
from controlplane.apiserver.services.requests import wish_in
from controlplane.apiserver.settings_store import SettingsStore
from controlplane.apiserver.views.key_count import KeyCount
from controlplane.apiserver.views.leadership import TermView
from controlplane.apiserver.watching import following, watch
from controlplane.cache.reflector import Delta
from controlplane.cache.snapshot import Snapshot
from controlplane.model.errors import LimitExceeded, Refused, Unavailable
from controlplane.model.leadership import Candidate, Term
from controlplane.model.order import Order
from controlplane.model.settings import Settings
from controlplane.model.totals import Totals
from controlplane.store import keys
from controlplane.wire import convert, errors
from controlplane.wire.v1 import cluster_pb2, cluster_pb2_grpc

FORWARD_SECONDS = 5.0
# Keys that are set aside, and characters of each and of its rule.
_MOST_POISONED, _MOST_SHOWN = 20, 500
# A forwarded step-down is not forwarded again, whatever this replica believes.
_FORWARDED = "x-controlplane-forwarded"


class Cluster:
    def __init__(self, deps: ApiDependencies, applying: Applying) -> None:
        self._deps = deps
        self._applying = applying
        self._settings = SettingsStore(deps)
        self._terms = TermView()
        self._count = KeyCount(deps.cache)

    @answered
    async def Status(self, _request: Any, _context: Context) -> Any:
        snapshot = self._deps.cache.snapshot
        answer = cluster_pb2.StatusResponse(
            id=self._deps.replica_id,
            version=self._deps.version,
            revision=snapshot.revision,
            leader=self._leader(),
            replicas=self._replicas(),
            orders=snapshot.count("config/orders"),
            targets=snapshot.count("config/targets"),
            keys=self._count.keys,
            poisoned=len(self._deps.ledgers.poison),
            poisoned_keys=self._poisoned(),
            repaired=self._deps.cache.repaired,
            cache_age_seconds=self._deps.cache.age_seconds,
            totals=self._totals(snapshot),
        )
        upkeep.describe(self._deps, answer)
        showing_isolated.describe(self._deps, answer)
        return answer

    def _poisoned(self) -> list[Any]:
        """Some of what is set aside: a person looks at those first."""
        some = islice(self._deps.ledgers.poison.items(), _MOST_POISONED)
        return [cluster_pb2.PoisonedKey(key=key[:_MOST_SHOWN], rule=rule[:_MOST_SHOWN]) for key, rule in some]

    @answered
    async def EndRestore(self, _request: Any, _context: Context) -> Any:
        return await upkeep.end_restore(self._deps)

    @answered
    async def GetTotals(self, request: Any, context: Context) -> Any:
        return self._totals(await fresh(self._deps.cache, request.min_revision, context))

    @streamed
    async def WatchTotals(self, request: Any, context: Context) -> AsyncGenerator[Any, None]:
        await fresh(self._deps.cache, request.min_revision, context)
        async with aclosing(following(self._deps.cache, keys.TOTALS_PLACE[:1], _concerns_totals)) as changes:
            async for _ in changes:
                yield self._totals(self._deps.cache.snapshot)

    @staticmethod
    def _totals(snapshot: Snapshot) -> Any:
        """All zero before a leader wrote any."""
        entry = snapshot.get(*keys.TOTALS_PLACE)
        totals = entry.sound(Totals) if entry is not None else None
        return convert.to_wire(totals or Totals(epoch=0), cluster_pb2.Totals)

    def _replicas(self) -> list[Any]:
        term, clocks = self._deps.election.leader(), self._deps.election.clocks_off()
        entries = sorted(self._deps.cache.snapshot.all("election"), key=lambda entry: entry.stored.create_revision)
        found = []
        for entry in entries:
            candidate = entry.sound(Candidate)
            if candidate is not None:
                message = convert.to_wire(candidate, cluster_pb2.Replica)
                message.leads = term is not None and term.epoch == entry.stored.create_revision
                if candidate.id in clocks:
                    message.clock_off = clocks[candidate.id]
                found.append(message)
        return found

    def _leader(self) -> Any:
        term = self._deps.election.leader()
        if term is None:
            return cluster_pb2.Leader()
        return cluster_pb2.Leader(id=term.id, epoch=term.epoch, since=term.since, grpc=term.grpc, http=term.http)

    @answered
    async def GetLeader(self, request: Any, context: Context) -> Any:
        await fresh(self._deps.cache, request.min_revision, context)
        return self._leader()

    @streamed
    async def WatchLeader(self, request: Any, context: Context) -> AsyncGenerator[Any, None]:
        await fresh(self._deps.cache, request.min_revision, context)
        last: Any = None
        async with aclosing(following(self._deps.cache, ("election", "terms"))) as changes:
            async for _ in changes:
                leader = self._leader()
                if leader != last:
                    last = leader
                    yield leader

    @answered
    async def StepDown(self, request: Any, context: Context) -> Any:
        term = self._deps.election.leader()
        if term is None:
            raise Unavailable("nobody leads at the moment")
        if term.id == self._deps.replica_id:
            try:
                return cluster_pb2.StepDownResponse(epoch=await self._deps.election.step_down())
            except Refused as error:
                raise Unavailable(f"leadership is moving: {error}") from None
        if any(key == _FORWARDED for key, _ in context.invocation_metadata() or ()):
            raise Unavailable("leadership is moving; try again")
        return await self._forward(term, request)

    async def _forward(self, term: Term, request: Any) -> Any:
        async with grpc.aio.insecure_channel(term.grpc) as channel:
            stub = cluster_pb2_grpc.ClusterStub(channel)
            try:
                return await stub.StepDown(request, timeout=FORWARD_SECONDS, metadata=((_FORWARDED, "1"),))
            except grpc.aio.AioRpcError as error:
                raise errors.from_rpc(error) from None

    @answered
    async def ListTerms(self, request: Any, context: Context) -> Any:
        return cluster_pb2.ListTermsResponse(**await listed(self._deps.cache, self._terms, request, context))

    @streamed
    def WatchTerms(self, request: Any, context: Context) -> AsyncGenerator[Any, None]:
        return watch(self._deps.cache, self._terms, cluster_pb2.TermEvent, request, context)

    @answered
    async def Hash(self, _request: Any, _context: Context) -> Any:
        revision, digest, keys = await self._deps.cache.hash()
        return cluster_pb2.HashResponse(revision=revision, hash=digest, keys=keys)

    @answered
    async def Apply(self, request: Any, context: Context) -> Any:
        if request.ByteSize() > MAX_BYTES:
            raise LimitExceeded(f"objects: must not be above {MAX_BYTES} bytes together", field="objects")
        await fresh(self._deps.cache, 0, context)
        wishes = await self._deps.offload.run(
            lambda: [wish_in(message, f"objects[{position}]") for position, message in enumerate(request.objects)]
        )
        done, revision, warnings = await self._applying.apply(wishes)
        answer = cluster_pb2.ApplyResponse(revision=revision)
        for applied in done:
            item = applied.item
            kind = str(type(item).__struct_config__.tag)
            name = "" if isinstance(item, Order | Settings) else item.name
            identity = "" if isinstance(item, Settings) else item.id
            answer.items.add(kind=kind, name=name, id=identity, result=applied.result)
        return warned(answer, warnings)

    @answered
    async def GetSettings(self, request: Any, context: Context) -> Any:
        snapshot = await fresh(self._deps.cache, request.min_revision, context)
        settings, revision = self._settings.read(snapshot)
        return _settings_message(settings, revision)

    @answered
    async def UpdateSettings(self, request: Any, _context: Context) -> Any:
        settings = await self._deps.offload.run(lambda: convert.to_model(request, Settings))
        stored, revision = await self._settings.update(settings, request.revision)
        return cluster_pb2.SettingsResponse(revision=revision, item=_settings_message(stored, revision))


def _settings_message(settings: Settings, revision: int) -> Any:
    message = convert.to_wire(settings, cluster_pb2.Settings)
    message.revision = revision
    return message


def _concerns_totals(delta: Delta) -> bool:
    return (delta.tree, *delta.parts) == keys.TOTALS_PLACE
