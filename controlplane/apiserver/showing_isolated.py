"""What is isolated, for `Cluster.Status`: the keys that the leader leaves out, and those that this replica does."""

from __future__ import annotations

from controlplane.apiserver.dependencies import ApiDependencies
from controlplane.cache.isolated import isolation_of
from controlplane.model.isolation import Isolated
from controlplane.wire.v1 import cluster_pb2

MOST_SHOWN = 20


def describe(deps: ApiDependencies, answer: cluster_pb2.StatusResponse) -> None:
    """The leader wrote down what it leaves out; what a replica fails at by itself, only that replica knows."""
    record = isolation_of(deps.cache.snapshot)
    named: list[Isolated] = []
    if record is not None:
        answer.isolated = record.total
        named.extend(record.keys)
    if deps.quarantine is not None:
        answer.isolated += deps.quarantine.total
        named.extend(deps.quarantine.isolated(MOST_SHOWN))
    named.sort(key=lambda key: key.since, reverse=True)
    for key in named[:MOST_SHOWN]:
        answer.isolated_keys.add(
            kind=key.about.kind,
            name=key.about.name,
            part=key.part,
            error=key.error,
            count=key.count,
            since=key.since,
            again=key.again,
        )
