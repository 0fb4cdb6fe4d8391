"""packing: how many targets `pack` uses, beside best fit on the same sequence and beside the best of all ways.

Tasks of random sizes come one after the other. Best fit is the plain one: of the bins that take the task, the one that
is left with the least. The best of all ways is worked out for small worlds, by trying all that may be better.
"""

from __future__ import annotations

import random
from collections.abc import Sequence

from controlplane.engine.decide import decide
from controlplane.engine.service import NO_DEADLINE, Group, Queue
from controlplane.engine.signature import Signature
from controlplane.model.settings import Settings
from tests.benchmarks.rows import Row
from tests.builders import a_row, a_world

Amounts = tuple[int, ...]
_NAMES = ("cpu", "memory")
_WHOLE = 64
_TASKS = 1_000
_ROUNDS = 10
_SMALL_WORLDS = 200
_SMALL_TASKS = 12
_SMALL_BINS = 4


def sequence(chance: random.Random, tasks: int, quantities: int, largest: int) -> list[Amounts]:
    return [tuple(chance.randint(1, largest) for _ in range(quantities)) for _ in range(tasks)]


def packed(tasks: Sequence[Amounts]) -> int:
    """How many targets the engine uses, when there are as many as tasks."""
    rows = (a_row(f"t{at:04d}", cpu=_WHOLE, memory=_WHOLE) for at in range(len(tasks)))
    world = a_world(*rows, settings=Settings(placement="pack", cycle_budget=len(tasks)))
    queues: dict[Signature, list[Group]] = {}
    for at, amounts in enumerate(tasks):
        signature = Signature(tuple(zip(_NAMES, amounts, strict=False)))
        group = Group((NO_DEADLINE, f"{at:09d}", f"order-{at:07d}", 0), "job", 1)
        queues.setdefault(signature, []).append(group)
    decision = decide(
        world, [Queue(50, "owner", signature, groups, len(groups)) for signature, groups in queues.items()]
    )
    assert decision.placed() == len(tasks)
    return len({placement.target for placement in decision.placements})


def best_fit(tasks: Sequence[Amounts]) -> int:
    bins: list[list[int]] = []
    for amounts in tasks:
        able = [one for one in bins if all(left >= amount for left, amount in zip(one, amounts, strict=True))]
        if not able:
            bins.append([_WHOLE] * len(amounts))
            able = bins[-1:]
        tightest = min(able, key=sum)
        for at, amount in enumerate(amounts):
            tightest[at] -= amount
    return len(bins)


def fewest(sizes: Sequence[int]) -> int:
    """The fewest bins that hold them all: the large ones first, each into every bin that differs from the others, and
    no further where what is left cannot be better than the best so far."""
    order = sorted(sizes, reverse=True)
    best = len(order)

    def go_on(at: int, bins: list[int]) -> None:
        nonlocal best
        missing = sum(order[at:]) - sum(bins)
        if len(bins) + max(0, -(-missing // _WHOLE)) >= best:
            return
        if at == len(order):
            best = len(bins)
            return
        for left in {left for left in bins if left >= order[at]}:
            rest = list(bins)
            rest[rest.index(left)] -= order[at]
            go_on(at + 1, rest)
        go_on(at + 1, [*bins, _WHOLE - order[at]])

    go_on(0, [])
    return best


def small_worlds() -> list[list[Amounts]]:
    """Sequences of which all tasks go into few bins."""
    chance = random.Random(_SMALL_WORLDS)
    found: list[list[Amounts]] = []
    while len(found) < _SMALL_WORLDS:
        tasks = sequence(chance, _SMALL_TASKS, 1, _WHOLE // 2)
        if fewest([size for (size,) in tasks]) <= _SMALL_BINS:
            found.append(tasks)
    return found


def run() -> list[Row]:
    rows = []
    for quantities, largest in ((1, _WHOLE // 2), (1, _WHOLE), (2, _WHOLE // 2), (2, _WHOLE)):
        some = [sequence(random.Random(seed), _TASKS, quantities, largest) for seed in range(_ROUNDS)]
        what = f"{_TASKS:,} tasks of {quantities} quantit{'y' if quantities == 1 else 'ies'} up to {largest}/{_WHOLE}"
        value, baseline = sum(map(packed, some)) / _ROUNDS, sum(map(best_fit, some)) / _ROUNDS
        rows.append(_row(f"{what}, against best fit", value, baseline, "<= best fit", met=value <= baseline))
    small = small_worlds()
    value, plain = sum(map(packed, small)), sum(map(best_fit, small))
    least = sum(fewest([size for (size,) in tasks]) for tasks in small)
    what = f"{_SMALL_WORLDS} worlds of {_SMALL_TASKS} tasks"
    rows.append(_row(f"{what}, against best fit", value, plain, "<= best fit", met=value <= plain))
    rows.append(_row(f"{what}, against the best of all ways", value, least))
    return rows


def _row(metric: str, value: float, baseline: float, goal: str = "", *, met: bool | None = None) -> Row:
    return Row("packing", metric, value, "targets", baseline, value / baseline, goal, met)
