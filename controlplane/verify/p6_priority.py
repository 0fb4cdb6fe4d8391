"""P6: in a cycle no task is placed while a waiting task of higher effective priority could have used the same capacity.

Judged from cycles that were decided again. First, the decision must equal the recorded decision. Then only those
waiting groups are examined that need capacity and no more: the promise is broken where groups of lower priority took
enough capacity for a task of the waiting group, on a target that would have taken the task. This check finds fewer
violations than the promise covers, and never a false one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from controlplane.model.quantity import EPSILON, Number
from controlplane.replay import Replayed
from controlplane.store import keys
from controlplane.verify.promise_verdicts import PromiseVerdict, Tally, unknown


@dataclass(frozen=True, slots=True)
class PlacedGroup:
    """`count` tasks of a job placed on the target; `requests` are the quantities of a single task."""

    order: str
    job: str
    target: str
    count: int
    priority: int
    requests: Mapping[str, Number]


@dataclass(frozen=True, slots=True)
class UnplacedGroup:
    """Tasks left waiting; only a lack of capacity could have kept them off `targets`."""

    order: str
    job: str
    priority: int
    requests: Mapping[str, Number]
    targets: frozenset[str]


@dataclass(frozen=True, slots=True)
class ReplayedCycle:
    """A cycle that was decided again."""

    replayed: Replayed
    placed: tuple[PlacedGroup, ...] = ()
    waiting: tuple[UnplacedGroup, ...] = ()


def judge(cycles: Iterable[ReplayedCycle], why_no_more: str = "") -> PromiseVerdict:
    """`why_no_more` is the reason why further cycles were not examined."""
    tally = Tally("P6", "no cycle is on record")
    for cycle in cycles:
        tally.checked += 1
        replayed = cycle.replayed
        key, revision = keys.cycle(replayed.epoch, replayed.cycle), replayed.revision
        if not replayed.same:
            tally.broken(key, revision, f"decided again, its hash is {replayed.got}, not {replayed.expected}")
            continue
        for why in overtaken(cycle):
            tally.broken(key, revision, why)
    return tally.verdict(why_no_more) if tally.checked else unknown("P6", why_no_more or "no cycle is on record")


def overtaken(cycle: ReplayedCycle) -> Iterable[str]:
    """A sentence for each waiting group whose capacity went to a group of lower priority."""
    for waiting in cycle.waiting:
        for target in sorted(waiting.targets):
            lower = [group for group in cycle.placed if group.target == target and group.priority < waiting.priority]
            if lower and _fits(waiting.requests, _taken(lower)):
                first = lower[0]
                yield (
                    f"{waiting.order}/{waiting.job} with priority {waiting.priority} waits, while "
                    f"{first.order}/{first.job} with priority {first.priority} was placed on {target}"
                )
                break


def _taken(placed: Iterable[PlacedGroup]) -> dict[str, Number]:
    taken: dict[str, Number] = {}
    for group in placed:
        for name, amount in group.requests.items():
            taken[name] = taken.get(name, 0) + amount * group.count
    return taken


def _fits(requests: Mapping[str, Number], taken: Mapping[str, Number]) -> bool:
    return all(amount <= taken.get(name, 0) + EPSILON for name, amount in requests.items() if amount > 0)
