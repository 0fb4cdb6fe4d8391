"""engine: how long one decision takes and how that grows, beside a bare numpy loop over the same groups and targets."""

from __future__ import annotations

import random
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from controlplane.engine.decide import decide
from controlplane.engine.decision import Decision
from controlplane.engine.service import NO_DEADLINE, Group, Queue
from controlplane.engine.world import World
from controlplane.model.settings import Settings
from tests.benchmarks import curves
from tests.benchmarks.rows import Row
from tests.builders import a_row, a_signature, a_world

PICTURE = Path("build/bench/engine.svg")
_OWNERS = 8
_PLENTY = 1 << 40
_ROUNDS = 5
_GI = 1 << 30


def world_of(targets: int) -> World:
    chance = random.Random(targets)
    rows = (
        a_row(
            f"target-{at:04d}",
            region=chance.choice(("eu", "us")),
            labels={"zone": chance.choice("abc")},
            cpu=chance.choice((256, 512, 1024)),
            memory=chance.choice((512, 1024, 2048)) * _GI,
        )
        for at in range(targets)
    )
    return a_world(*rows, settings=Settings(cycle_budget=_PLENTY))


def waiting(groups: int, tasks: int) -> list[Queue]:
    """Groups that all differ, of as many tasks each."""
    chance = random.Random(groups)
    each = tasks // groups
    queues = []
    for at in range(groups):
        signature = a_signature(cpu=chance.choice((0.25, 0.5, 1)), memory=_GI // 4 + at)
        group = Group((NO_DEADLINE, f"{at:09d}", f"order-{at:07d}", 0), "job", each)
        queues.append(Queue(chance.randint(1, 100), f"owner-{at % _OWNERS}", signature, (group,), each))
    return queues


def bare(world: World, queues: list[Queue]) -> None:
    """What any engine on columns has to do: per group what fits, which are best, and taking it."""
    free = {name: np.array([float(row.free[name]) for row in world.targets]) for name in ("cpu", "memory")}
    for queue in sorted(queues, key=lambda queue: -queue.priority):
        fits: np.ndarray[tuple[int], np.dtype[np.float64]] = np.full(len(world.targets), np.inf)
        for name, amount in queue.signature.needs:
            fits = np.minimum(fits, np.floor(free[name] / amount))
        order = np.argsort(-free["cpu"])
        each = np.minimum(fits[order], -(-queue.tasks // len(order)))
        taken = np.clip(queue.tasks - (np.cumsum(each) - each), 0, each)
        for name, amount in queue.signature.needs:
            free[name][order] -= taken * amount


def timed(call: Callable[[], object]) -> float:
    """Seconds of this process, the better of two runs: others use the machine too."""
    return min(_seconds(call) for _ in range(2))


def _seconds(call: Callable[[], object]) -> float:
    started = time.process_time()
    call()
    return time.process_time() - started


def _measured(groups: int, tasks: int, targets: int) -> tuple[float, float, Decision]:
    world, queues = world_of(targets), waiting(groups, tasks)
    took = timed(lambda: decide(world, queues))
    return took, timed(lambda: bare(world, queues)), decide(world, queues)


def run() -> list[Row]:
    took, least, decision = _measured(5_000, 1_000_000, 1_000)
    alone, least_alone, placed = _measured(100_000, 100_000, 100)
    by_groups = _grown({groups: (groups, 1_000) for groups in (500, 1_500, 5_000)})
    by_targets = _grown({targets: (5_000, targets) for targets in (100, 300, 1_000)})
    PICTURE.parent.mkdir(parents=True, exist_ok=True)
    curves.draw(PICTURE, {"groups (1,000 targets)": by_groups, "targets (5,000 groups)": by_targets})
    sys.stderr.write(f"growth: {PICTURE}\n")
    return [
        Row(
            "engine", "1,000,000 tasks, 5,000 groups, 1,000 targets", took, "s", least, took / least, "< 1 s", took < 1
        ),
        Row("engine", "of them placed", decision.placed(), "tasks"),
        Row(
            "engine", "100,000 different, 100 targets", alone, "s", least_alone, alone / least_alone, "< 5 s", alone < 5
        ),
        Row("engine", "of them placed", placed.placed(), "tasks"),
        _growth("groups", by_groups),
        _growth("targets", by_targets),
    ]


def _grown(sizes: dict[int, tuple[int, int]]) -> list[tuple[int, float]]:
    """The time for each size (groups, targets), in turns, so that a machine that changes its speed does so for all."""
    worlds = {size: (world_of(targets), waiting(groups, groups * 200)) for size, (groups, targets) in sizes.items()}
    took = dict.fromkeys(sizes, float("inf"))
    for _ in range(_ROUNDS):
        for size, (world, queues) in worlds.items():
            took[size] = min(took[size], _seconds(lambda world=world, queues=queues: decide(world, queues)))  # type: ignore[misc]
    return list(took.items())


def _growth(what: str, points: list[tuple[int, float]]) -> Row:
    """How the time grows against how the size does: 1 is linear, less is better."""
    (small, short), (large, long) = points[0], points[-1]
    power = float(np.log(long / short) / np.log(large / small))
    return Row("engine", f"growth in {what}, as a power", power, "", goal="<= 1.1", met=power <= 1.1)
