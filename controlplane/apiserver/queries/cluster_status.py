"""The state of the cluster as one replica sees it: leader, replicas, etcd's space, a restore, isolated keys."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from itertools import islice

import msgspec
from msgspec.structs import replace

from controlplane.apiserver.api_ports import ElectionPort, Reads, ReplicaIdentity
from controlplane.apiserver.authorisation import visible_owners
from controlplane.apiserver.call import Call
from controlplane.apiserver.fresh_reads import fresh
from controlplane.apiserver.queries.owner_totals import totals_of_owners
from controlplane.apiserver.queries.views.owner_index import OrderIndex
from controlplane.apiserver.queries.watching import following
from controlplane.cache import restore_state
from controlplane.cache.reflector import Cache, Delta
from controlplane.cache.snapshot import Snapshot
from controlplane.model.isolation import Isolated
from controlplane.model.leadership import Candidate, Term
from controlplane.model.space import Space
from controlplane.model.totals import Totals
from controlplane.quarantine import Quarantine
from controlplane.store import keys
from controlplane.store.space_watch import SpaceWatch

# The most poisoned keys, and the most characters of each key and its rule.
_MOST_POISONED, _MOST_CHARACTERS = 20, 500
_MOST_ISOLATED = 20
_TOTALS_SECONDS = 1.0
_OF_ORDERS = (keys.ORDERS, keys.ORDER_STATUS)


class ShownReplica(msgspec.Struct, frozen=True):
    """`clock_off`: the error of the replica's wall clock in seconds, None for a right clock."""

    candidate: Candidate
    leads: bool
    clock_off: float | None


class RestoreProgress(msgspec.Struct, frozen=True):
    """A restore under way; `waiting_for` are the targets without a report of their joblets."""

    since: str
    waiting_for: list[str]


class ClusterReport(msgspec.Struct, frozen=True, kw_only=True):
    """`poisoned_keys`: some unreadable keys, each with its broken rule.

    `isolated_keys`: some keys left out by the leader or this replica, since their handling fails.
    """

    replica: ReplicaIdentity
    revision: int
    leader: Term | None
    replicas: list[ShownReplica]
    orders: int
    targets: int
    keys: int
    poisoned: int
    poisoned_keys: list[tuple[str, str]]
    repaired: int
    cache_age_seconds: float
    totals: Totals
    space: Space | None
    archive_error: str
    restoring: RestoreProgress | None
    isolated: int
    isolated_keys: list[Isolated]


class KeyCount:
    """The number of keys in the cache, counted from changes instead of at each request."""

    def __init__(self, cache: Cache) -> None:
        self.keys = sum(1 for _ in cache.snapshot.everything())
        cache.subscribe(self._hear)

    def _hear(self, deltas: Sequence[Delta], _revision: int) -> None:
        for delta in deltas:
            self.keys += (delta.new is not None) - (delta.old is not None)


class ClusterQueries:
    def __init__(
        self,
        reads: Reads,
        replica: ReplicaIdentity,
        election: ElectionPort,
        *,
        space: SpaceWatch,
        quarantine: Quarantine | None,
        index: OrderIndex,
    ) -> None:
        self._reads = reads
        self._index = index
        self._replica = replica
        self._election = election
        self._space = space
        self._quarantine = quarantine
        self._count = KeyCount(reads.cache)

    async def status(self, call: Call) -> ClusterReport:
        """The state at this moment, however old the cache is. A caller who sees the work of some owners only is told
        nothing that counts or names the work of others: of etcd's space the level alone.
        """
        report = self._whole_status()
        if visible_owners(call.subject) is None:
            return report
        return replace(
            report,
            orders=0,
            keys=0,
            poisoned=0,
            poisoned_keys=[],
            repaired=0,
            totals=Totals(epoch=0),
            space=report.space and dataclasses.replace(report.space, size=0, in_use=0),
            archive_error="",
            isolated=0,
            isolated_keys=[],
        )

    def _whole_status(self) -> ClusterReport:
        cache, poison = self._reads.cache, self._reads.ledgers.poison
        snapshot = cache.snapshot
        archive = snapshot.archive_status()
        isolated, isolated_keys = self._isolated(snapshot)
        some = islice(poison.items(), _MOST_POISONED)
        return ClusterReport(
            replica=self._replica,
            revision=snapshot.revision,
            leader=self._election.leader(),
            replicas=self._replicas(snapshot),
            orders=snapshot.count(keys.ORDERS),
            targets=snapshot.count(keys.TARGETS),
            keys=self._count.keys,
            poisoned=len(poison),
            poisoned_keys=[(key[:_MOST_CHARACTERS], rule[:_MOST_CHARACTERS]) for key, rule in some],
            repaired=cache.repaired,
            cache_age_seconds=cache.age_seconds,
            totals=totals_of(snapshot),
            space=self._space.now,
            archive_error=archive.why if archive is not None else "",
            restoring=_restoring(snapshot),
            isolated=isolated,
            isolated_keys=isolated_keys,
        )

    async def totals(self, call: Call) -> Totals:
        """Those that the leader keeps; for a caller who sees the work of some owners, those of their orders."""
        snapshot, owners = await fresh(self._reads.cache, call), visible_owners(call.subject)
        return totals_of(snapshot) if owners is None else await totals_of_owners(snapshot, self._index, owners)

    async def watch_totals(self, call: Call) -> AsyncGenerator[Totals, None]:
        """The totals, and again after each change; those of some owners once a second at most."""
        last: Totals | None = None
        cache, owners = self._reads.cache, visible_owners(call.subject)
        await fresh(cache, call)
        trees, concerns = ((keys.STATUS,), _concerns_totals) if owners is None else (_OF_ORDERS, _concerns_all)
        async with aclosing(following(cache, trees, concerns)) as changes:
            async for _ in changes:
                totals = await self.totals(call)
                if owners is None or last is None or replace(totals, revision=last.revision) != last:
                    yield totals
                    last = totals
                if owners is not None:
                    await asyncio.sleep(_TOTALS_SECONDS)

    async def leader(self, call: Call) -> Term | None:
        await fresh(self._reads.cache, call)
        return self._election.leader()

    async def watch_leader(self, call: Call) -> AsyncGenerator[Term | None, None]:
        """The present leader, and again after each change of the leader or its addresses."""
        await fresh(self._reads.cache, call)
        last: object = ()
        async with aclosing(following(self._reads.cache, (keys.CANDIDATES, keys.TERMS))) as changes:
            async for _ in changes:
                term = self._election.leader()
                shown = None if term is None else (term.id, term.epoch, term.since, term.grpc, term.http)
                if shown != last:
                    last = shown
                    yield term

    async def hash(self, _call: Call) -> tuple[int, str, int]:
        """The revision of the cache, a digest of its content, and the number of keys."""
        return await self._reads.cache.hash()

    def _replicas(self, snapshot: Snapshot) -> list[ShownReplica]:
        term, clocks = self._election.leader(), self._election.clocks_off()
        replicas: list[ShownReplica] = []
        for entry in sorted(snapshot.all(keys.CANDIDATES), key=lambda entry: entry.stored.create_revision):
            candidate = entry.readable()
            if candidate is not None:
                leads = term is not None and term.epoch == entry.stored.create_revision
                replicas.append(ShownReplica(candidate, leads, clocks.get(candidate.id)))
        return replicas

    def _isolated(self, snapshot: Snapshot) -> tuple[int, list[Isolated]]:
        """Keys isolated by the leader are on record; keys isolated by a replica are known to that replica only."""
        record, own = snapshot.isolation(), self._quarantine
        total = (record.total if record is not None else 0) + (own.total if own is not None else 0)
        named = [*record.keys] if record is not None else []
        named.extend(own.isolated(_MOST_ISOLATED) if own is not None else ())
        named.sort(key=lambda key: key.since, reverse=True)
        return total, named[:_MOST_ISOLATED]


def totals_of(snapshot: Snapshot) -> Totals:
    """All zero before the first totals of a leader."""
    return snapshot.totals() or Totals(epoch=0)


def _concerns_all(_delta: Delta) -> bool:
    return True


def _concerns_totals(delta: Delta) -> bool:
    return (delta.tree, *delta.parts) == keys.TOTALS.place


def _restoring(snapshot: Snapshot) -> RestoreProgress | None:
    cluster = snapshot.cluster_status()
    if cluster is None or not cluster.restoring:
        return None
    return RestoreProgress(cluster.since, restore_state.waiting_for(snapshot))
