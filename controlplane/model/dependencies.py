"""Dependencies between the jobs of an order: the `after` of its packet as a graph.

Pure, and about names only: the order's ledger knows whether a job is done or can never run.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from functools import lru_cache

from controlplane.model.order import Resolved

DEPENDENCY_FAILED = "DependencyFailed"


@dataclass(frozen=True, slots=True)
class Dependencies:
    """`after`: the jobs that each job waits for; `followers`: the jobs that wait for each. Free jobs are in neither."""

    after: Mapping[str, tuple[str, ...]]
    followers: Mapping[str, tuple[str, ...]]

    def downstream(self, name: str, known: Set[str]) -> Iterator[str]:
        """Every job that waits for this job, directly or not, without looking beyond known jobs."""
        seen: set[str] = set()
        left = [name]
        while left:
            for follower in self.followers.get(left.pop(), ()):
                if follower not in known and follower not in seen:
                    seen.add(follower)
                    left.append(follower)
                    yield follower


def of(resolved: Resolved) -> Dependencies | None:
    """None without dependencies; orders with the same dependencies share a graph."""
    for job in resolved.jobs:
        if job.after:
            return _graph(tuple((job.job.name, job.after) for job in resolved.jobs if job.after))
    return None


@lru_cache(maxsize=1000)
def _graph(edges: tuple[tuple[str, tuple[str, ...]], ...]) -> Dependencies:
    after = {name: tuple(dict.fromkeys(before)) for name, before in edges}
    return Dependencies(after, {name: tuple(those) for name, those in _followers(after).items()})


def waiting_for_itself(after: Mapping[str, Sequence[str]]) -> frozenset[str]:
    """The jobs that could never begin: they wait for themselves, or for a job that does."""
    waits = {name: set(before) for name, before in after.items() if before}
    followers = _followers(after)
    free = [name for name in followers if name not in waits]
    while free:
        done = free.pop()
        for name in followers.get(done, ()):
            waits[name].discard(done)
            if not waits[name]:
                del waits[name]
                free.append(name)
    return frozenset(waits)


def _followers(after: Mapping[str, Sequence[str]]) -> dict[str, list[str]]:
    followers: dict[str, list[str]] = {}
    for name, before in after.items():
        for other in dict.fromkeys(before):
            followers.setdefault(other, []).append(name)
    return followers
