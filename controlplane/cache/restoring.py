"""What a snapshot says of a restore: whether placing is off, and for whom it waits. Pure."""

from __future__ import annotations

from controlplane.cache.snapshot import Snapshot
from controlplane.model.cluster import ClusterStatus, Resume
from controlplane.model.target import Live
from controlplane.store import keys


def cluster_of(snapshot: Snapshot) -> ClusterStatus | None:
    entry = snapshot.get("status", "cluster")
    return entry.sound(ClusterStatus) if entry is not None else None


def is_restoring(snapshot: Snapshot) -> bool:
    cluster = cluster_of(snapshot)
    return cluster is not None and cluster.restoring


def is_restored(snapshot: Snapshot) -> bool:
    """Whether this etcd came from a backup, however long ago."""
    cluster = cluster_of(snapshot)
    return cluster is not None and cluster.restored > 0


def waiting_for(snapshot: Snapshot) -> list[str]:
    """Targets whose joblets have not reported yet; none once a person said not to wait. Deleted ones do not count."""
    cluster = cluster_of(snapshot)
    if cluster is None or not cluster.restoring or _is_resumed(snapshot, cluster.cluster_id):
        return []
    return missing(snapshot, cluster)


def missing(snapshot: Snapshot, cluster: ClusterStatus) -> list[str]:
    """Whoever was alive in the backup, still exists and has not reported, whether anybody waits for it or not."""
    return [
        name
        for name in cluster.waiting_for
        if snapshot.get("config/targets", name) is not None and not has_reported(snapshot, name, cluster.cluster_id)
    ]


def has_reported(snapshot: Snapshot, target: str, cluster_id: str) -> bool:
    """Its joblet has opened a session on this etcd, which it does only when nothing of before runs there any more."""
    entry = snapshot.get("inventory", target, keys.LIVE)
    live = entry.sound(Live) if entry is not None else None
    return live is not None and live.cluster == cluster_id


def known_attempt(snapshot: Snapshot, cluster_id: str) -> int:
    """The highest attempt number that a live joblet knew when it came to this etcd."""
    lives = (snapshot.get("inventory", name, keys.LIVE) for name in snapshot.names("inventory"))
    sound = (entry.sound(Live) for entry in lives if entry is not None)
    return max((live.known_attempt for live in sound if live is not None and live.cluster == cluster_id), default=0)


def attempt_floor(snapshot: Snapshot) -> int:
    cluster = cluster_of(snapshot)
    return cluster.attempt_floor if cluster is not None else 0


def _is_resumed(snapshot: Snapshot, cluster_id: str) -> bool:
    entry = snapshot.get("config", "restore")
    resume = entry.sound(Resume) if entry is not None else None
    return resume is not None and resume.cluster_id == cluster_id
