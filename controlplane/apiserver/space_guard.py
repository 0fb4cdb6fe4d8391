"""Admission while etcd is short of room: what would make it grow is refused, and says why.

Reads, cancels, deletes, settings (which may shorten what is kept) and what joblets report go on as far as etcd lets
them. A repeated submit of a known identity is answered all the same, since it writes nothing.
"""

from __future__ import annotations

from controlplane.apiserver.dependencies import ApiDependencies
from controlplane.model.errors import LimitExceeded
from controlplane.model.space import Level


def check_room(deps: ApiDependencies) -> None:
    """LimitExceeded while etcd is nearly full. Knows what this replica saw when it last looked, a moment ago."""
    space = deps.space.now
    if space is not None and space.level is Level.FULL:
        raise LimitExceeded(f"nothing new is taken while etcd is short of space: {space.sentence()}")
