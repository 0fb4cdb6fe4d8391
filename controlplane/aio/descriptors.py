"""How many files and connections this process may have open."""

from __future__ import annotations

import resource

# For etcd, the pulse, hosted joblets, the archive and whatever else is not a client of the API.
_RESERVE = 256
_MOST_CONNECTIONS = 10_000
_LEAST_CONNECTIONS = 32


def raise_limit() -> int:
    """Lets this process open as many as the system allows it at all; returns how many that is."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return hard


def most_connections() -> int:
    """How many of them clients of the API may take; the others are kept for what a replica cannot do without."""
    soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    if soft == resource.RLIM_INFINITY:
        return _MOST_CONNECTIONS
    return max(_LEAST_CONNECTIONS, min(_MOST_CONNECTIONS, (soft - _RESERVE) // 2))
