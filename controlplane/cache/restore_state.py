"""The state of a restore according to a snapshot: whether placing is off, and which targets are awaited. Pure."""

from __future__ import annotations

from controlplane.cache.snapshot import Snapshot
from controlplane.model.cluster import ClusterStatus
from controlplane.store import keys


def is_restoring(snapshot: Snapshot) -> bool:
    cluster = snapshot.cluster_status()
    return cluster is not None and cluster.restoring


def is_restored(snapshot: Snapshot) -> bool:
    """Whether this etcd ever came from a backup."""
    cluster = snapshot.cluster_status()
    return cluster is not None and cluster.restored > 0


def waiting_for(snapshot: Snapshot) -> list[str]:
    """Targets whose joblets have not reported yet, without deleted targets; none once a person ended the wait."""
    cluster = snapshot.cluster_status()
    if cluster is None or not cluster.restoring or _is_resumed(snapshot, cluster.cluster_id):
        return []
    return missing(snapshot, cluster)


def missing(snapshot: Snapshot, cluster: ClusterStatus) -> list[str]:
    """Targets that were alive in the backup, still exist and have not reported, awaited or not."""
    return [
        name
        for name in cluster.waiting_for
        if snapshot.has(keys.TARGETS, name) and not has_reported(snapshot, name, cluster.cluster_id)
    ]


def has_reported(snapshot: Snapshot, target: str, cluster_id: str) -> bool:
    """Whether the joblet has a session on this etcd. A joblet stops all earlier work before it opens a session."""
    live = snapshot.live(target)
    return live is not None and live.cluster == cluster_id


def known_attempt(snapshot: Snapshot, cluster_id: str) -> int:
    """The highest attempt number that live joblets brought to this etcd."""
    lives = (snapshot.live(name) for name in snapshot.names(keys.INVENTORY))
    return max((live.known_attempt for live in lives if live is not None and live.cluster == cluster_id), default=0)


def attempt_floor(snapshot: Snapshot) -> int:
    cluster = snapshot.cluster_status()
    return cluster.attempt_floor if cluster is not None else 0


def _is_resumed(snapshot: Snapshot, cluster_id: str) -> bool:
    resume = snapshot.resume()
    return resume is not None and resume.cluster_id == cluster_id
