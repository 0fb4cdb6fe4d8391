"""Whether this replica can serve: its picture of etcd is there, and not too old."""

from __future__ import annotations

from controlplane.cache.reflector import Cache


def why_not_ready(cache: Cache) -> str:
    """Empty when it is ready."""
    if not cache.synced:
        return "the cache has not been filled from etcd yet"
    if cache.is_stale:
        return f"the cache is {cache.age_seconds:.0f} s old: no sign of life from a quorum of etcd"
    return ""
