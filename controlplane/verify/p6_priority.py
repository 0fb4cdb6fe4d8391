"""P6: in a cycle no task is placed while one of higher effective priority that could have used that room waits.

Judged from cycles that were decided again. First the decision must be the one on record. Then, of what waits, only
such groups are looked at as need nothing but room; where lower ones took enough room for one of their tasks on a target
that would have taken it, the promise is broken. That is less than the promise says, and never a false alarm.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from controlplane.model.quantity import Number
from controlplane.replay.replayed import Replayed
from controlplane.store import keys
from controlplane.verify.verdict import Tally, Verdict, unknown

_EPSILON = 1e-9


@dataclass(frozen=True, slots=True)
class Placed:
    """So many tasks of one job went onto the target; `requests` is what each of them asks for."""

    order: str
    job: str
    target: str
    count: int
    priority: int
    requests: Mapping[str, Number]


@dataclass(frozen=True, slots=True)
class Waiting:
    """Tasks that were left, and the targets where nothing but room could have refused them."""

    order: str
    job: str
    priority: int
    requests: Mapping[str, Number]
    targets: frozenset[str]


@dataclass(frozen=True, slots=True)
class Seen:
    """One cycle, decided again."""

    replayed: Replayed
    placed: tuple[Placed, ...] = ()
    waiting: tuple[Waiting, ...] = ()


def judge(cycles: Iterable[Seen], why_no_more: str = "") -> Verdict:
    """`why_no_more` tells what kept others from being looked at."""
    tally = Tally("P6", "no cycle is on record")
    for seen in cycles:
        tally.checked += 1
        key, revision = keys.cycle(seen.replayed.epoch, seen.replayed.cycle), seen.replayed.revision
        if not seen.replayed.same:
            tally.broken(key, revision, f"decided again, its hash is {seen.replayed.got}, not {seen.replayed.expected}")
            continue
        for why in overtaken(seen):
            tally.broken(key, revision, why)
    return tally.verdict(why_no_more) if tally.checked else unknown("P6", why_no_more or "no cycle is on record")


def overtaken(seen: Seen) -> Iterable[str]:
    """Each group that waits although lower ones took room that it could have used."""
    for waiting in seen.waiting:
        for target in sorted(waiting.targets):
            lower = [one for one in seen.placed if one.target == target and one.priority < waiting.priority]
            if lower and _fits(waiting.requests, _taken(lower)):
                first = lower[0]
                yield (
                    f"{waiting.order}/{waiting.job} with priority {waiting.priority} waits, while "
                    f"{first.order}/{first.job} with priority {first.priority} was placed on {target}"
                )
                break


def _taken(placed: Iterable[Placed]) -> dict[str, Number]:
    taken: dict[str, Number] = {}
    for one in placed:
        for name, amount in one.requests.items():
            taken[name] = taken.get(name, 0) + amount * one.count
    return taken


def _fits(requests: Mapping[str, Number], taken: Mapping[str, Number]) -> bool:
    return all(amount <= taken.get(name, 0) + _EPSILON for name, amount in requests.items() if amount > 0)
