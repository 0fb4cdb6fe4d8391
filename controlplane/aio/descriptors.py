"""Descriptors: how many files and connections the process may have open."""

from __future__ import annotations

import resource

# Kept for etcd, the pulse, hosted joblets, the archive and all other uses but clients of the API.
_RESERVE = 256
_MOST_CONNECTIONS = 10_000
_LEAST_CONNECTIONS = 32


def raise_limit() -> int:
    """Raises the limit of open descriptors to the maximum that the system allows; returns the limit."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return hard


def most_connections() -> int:
    """How many descriptors clients of the API may take; the others are kept for the replica's own needs."""
    soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    if soft == resource.RLIM_INFINITY:
        return _MOST_CONNECTIONS
    return max(_LEAST_CONNECTIONS, min(_MOST_CONNECTIONS, (soft - _RESERVE) // 2))
