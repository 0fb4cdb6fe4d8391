"""Whether this replica can serve: its picture of etcd is there, and it is following."""

from __future__ import annotations

from controlplane.cache.reflector import Cache


def why_not_ready(cache: Cache) -> str:
    """Empty when it is ready."""
    if not cache.synced:
        return "the cache has not been filled from etcd yet"
    if not cache.following:
        return "the cache gets no sign of life from etcd"
    return ""
