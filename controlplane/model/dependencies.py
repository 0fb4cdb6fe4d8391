"""Which jobs of an order wait for which others: the `after` of its packet as a graph.

Pure. Knows names only; whether a job is done or can never run, the order's ledger says.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from functools import lru_cache

from controlplane.model.order import Resolved

DEPENDENCY_FAILED = "DependencyFailed"


@dataclass(frozen=True, slots=True)
class Dependencies:
    """`after`: what each job waits for; `followers`: what waits for each. Jobs without are in neither."""

    after: Mapping[str, tuple[str, ...]]
    followers: Mapping[str, tuple[str, ...]]

    def downstream(self, name: str, known: Set[str]) -> Iterator[str]:
        """Every job that waits for this one, over others too, not looking beyond those that are known."""
        seen: set[str] = set()
        left = [name]
        while left:
            for follower in self.followers.get(left.pop(), ()):
                if follower not in known and follower not in seen:
                    seen.add(follower)
                    left.append(follower)
                    yield follower


def of(resolved: Resolved) -> Dependencies | None:
    """None when no job waits for another; one graph for all orders that have the same."""
    for job in resolved.jobs:
        if job.after:
            return _graph(tuple((job.job.name, job.after) for job in resolved.jobs if job.after))
    return None


@lru_cache(maxsize=1000)
def _graph(edges: tuple[tuple[str, tuple[str, ...]], ...]) -> Dependencies:
    after = {name: tuple(dict.fromkeys(before)) for name, before in edges}
    return Dependencies(after, {name: tuple(those) for name, those in _followers(after).items()})


def waiting_for_itself(after: Mapping[str, Sequence[str]]) -> frozenset[str]:
    """The jobs that could never begin, since they wait for themselves or for one that does."""
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
