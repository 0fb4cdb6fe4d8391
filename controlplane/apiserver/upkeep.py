"""What Cluster tells about etcd's room, the archive and a restore; a person's word that ends the waiting after one."""

from __future__ import annotations

from controlplane.apiserver.dependencies import ApiDependencies
from controlplane.apiserver.repeating import insist
from controlplane.cache import restoring
from controlplane.model import times
from controlplane.model.cluster import ArchiveStatus, Resume
from controlplane.model.errors import IllegalTransition
from controlplane.store import codec, keys, transaction
from controlplane.store.transaction import Item
from controlplane.wire.v1 import cluster_pb2


def describe(deps: ApiDependencies, answer: cluster_pb2.StatusResponse) -> None:
    """Fills in what there is to say."""
    snapshot = deps.cache.snapshot
    space = deps.space.now
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
    entry = snapshot.get("status", "archive")
    archive = entry.sound(ArchiveStatus) if entry is not None else None
    answer.archive_error = archive.why if archive is not None else ""
    cluster = restoring.cluster_of(snapshot)
    if cluster is not None and cluster.restoring:
        answer.restoring.since = cluster.since
        answer.restoring.waiting_for.extend(restoring.waiting_for(snapshot))


async def end_restore(deps: ApiDependencies) -> cluster_pb2.EndRestoreResponse:
    """Says the same twice without harm; IllegalTransition when nothing waits."""
    snapshot = deps.cache.snapshot
    cluster = restoring.cluster_of(snapshot)
    if cluster is None or not cluster.restoring:
        raise IllegalTransition("no restore is under way: nothing waits for joblets")
    word = Resume(cluster_id=cluster.cluster_id, at=times.show(deps.clock.wall()))
    waited = restoring.waiting_for(snapshot)
    outcome, _ = await insist(deps, Item(then=(transaction.put(keys.RESTORE, codec.encode(word)),)))
    return cluster_pb2.EndRestoreResponse(revision=outcome.revision, not_reported=waited)
