"""Generated worlds with all features mixed: small, and drawn from few values, so that things meet.

Amounts are exact in binary, so that sums do not depend on their order. What is rare in a world is drawn rarely, since
a task that everything refuses tests nothing. Hypothesis draws how much there is, and a seed for the rest: that is fast,
and a world that fails is still made small.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from random import Random
from typing import Any, TypeVar

import msgspec
from hypothesis import Phase, settings
from hypothesis import strategies as st

from controlplane.model import times
from controlplane.model.job import Constraint, Constraints, Job
from controlplane.model.order import Move, Order, Resolved, ResolvedJob
from controlplane.model.resource import Resource
from controlplane.model.rule import Effect, Rule
from controlplane.model.settings import Quota, Settings, Weights
from controlplane.model.target import Target, Window
from tests.reference import Law
from tests.worlds import NOW, Scene, Task

Said = dict[str, Any]
Choices = dict[str, Sequence[Any]]
T = TypeVar("T")


def examples(count: int) -> settings:
    """Without the phase that looks for the guilty lines: a failing world is made small, which takes long enough."""
    phases = (Phase.explicit, Phase.reuse, Phase.generate, Phase.shrink)
    return settings(deadline=None, max_examples=count, phases=phases)


def rarely(usual: T, *others: T, times_more: int = 12) -> list[T]:
    """The usual one is there so many times more often than all the others."""
    return [usual] * times_more * len(others) + list(others)


def drawn(random: Random, choices: Mapping[str, Sequence[Any]]) -> Said:
    return {name: random.choice(values) for name, values in choices.items()}


NAMES = tuple(f"t{at}" for at in range(6))
UNIQUE = ("x", "y")
OPEN = Window(days=("mon",), from_="08:00", to="18:00")
CLOSED = Window(days=("tue",), from_="08:00", to="18:00")
ON_TARGETS = (
    Constraint(label="zone", op="In", values=("a",)),
    Constraint(label="zone", op="NotIn", values=("a",)),
    Constraint(label="zone", op="Exists"),
    Constraint(label="zone", op="DoesNotExist"),
    Constraint(label="size", op="Gt", values=("1",)),
    Constraint(label="size", op="Lt", values=("2",)),
    Constraint(label="name", op="NotIn", values=("t0",)),
)
ON_JOBS = (
    (Constraint(label="team", op="In", values=("x",)),),
    (Constraint(label="team", op="Exists"),),
    (Constraint(label="team", op="NotIn", values=("x",)),),
    (Constraint(label="team", op="In", values=("x", "y")), Constraint(label="team", op="NotIn", values=("y",))),
    (Constraint(label="team", op="In", values=("x",)), Constraint(label="part", op="Exists")),
)
CONSTRAINTS = (
    *(Constraints(hard=(one,)) for one in ON_TARGETS),
    *(Constraints(soft=(one,)) for one in ON_TARGETS),
    Constraints(hard=(ON_TARGETS[2], ON_TARGETS[5])),
    Constraints(soft=(msgspec.structs.replace(ON_TARGETS[0], weight=0), ON_TARGETS[3])),
    Constraints(soft=(msgspec.structs.replace(ON_TARGETS[0], weight=20), ON_TARGETS[4])),
)
JOBS: Choices = {
    # Who has both labels may match all of its own terms where a stranger matches one of them.
    "labels": [{"team": "x"}, {}, {"team": "y"}, {"team": "x", "part": "web"}, {"part": "web"}],
    "requests": [{"cpu": cpu} for cpu in (1, 0.5, 1, 2, 3, 0)] * 2
    + [{}, {"cpu": 1, "memory": 2}, {"memory": 3}, {"gpu": 1}],
    "time_limit": [None, None, 10, 50, 100, 1000],
    "target_policy": rarely(None, "any", "strict:t0", "strict:nowhere"),
    "drivers": rarely((), ("process",), ("kubernetes", "simulated")),
    "constraints": rarely(None, *CONSTRAINTS, times_more=5),
    "affinity": rarely((), *ON_JOBS, times_more=6),
    "anti_affinity": rarely((), *ON_JOBS, times_more=6),
    "spread": rarely(None, "order", times_more=6),
    "region": rarely("", "eu", "us"),
    "prefer": rarely((), (("t1",),), (("t2", "t1"), ("t0",)), times_more=3),
    "exclusive": rarely(False, True, times_more=8),
    "class_": rarely("", "loud", times_more=3),
    "hurt_by": rarely((), ("loud",), times_more=3),
    "preemptible": [False, True],
    "resources": rarely((), ("x",), ("x", "y")),
}
TARGETS: Choices = {
    "driver": rarely("process", "simulated", times_more=2),
    "region": ["eu", "us", ""],
    "labels": [{}, {"zone": "a", "size": "1"}, {"zone": "b", "size": "2"}, {"size": "big"}],
    "capacity": [{"cpu": cpu} for cpu in (4, 2, 3, 5, 6, 8, 1, 0)]
    + [{"cpu": 4, "memory": 4}] * 2
    + [{"cpu": 3, "memory": 12}, {"cpu": 12, "memory": 3}, {"cpu": 7, "memory": 0, "gpu": 2}],
    "max_fulfilments": rarely(None, 1, 2, 3, times_more=2),
    "windows": rarely((), (OPEN,), (CLOSED,)),
    "cordoned": rarely(False, True),
    "unready": rarely(False, True),
}
ORDERS: Choices = {
    "priority": [10, 50, 50, 90],
    "owner": ["ann", "bob", "cat"],
    "created": [times.show(NOW - timedelta(seconds=age)) for age in (100, 200, 300)],
    "deadline": rarely(None, 1000, 2000, times_more=2),
    "target_policy": rarely(None, "any", "strict:t1"),
    "not_before": rarely(None, times.show(NOW), times.show(NOW + timedelta(hours=1))),
    "paused": rarely(False, True, times_more=8),
    "gang": rarely(False, True, times_more=3),
    "preempts": [False, True],
}
# Worlds in which hardly anything is refused for another reason than that there is no room yet.
BUSY_JOBS: Choices = JOBS | {
    "requests": [{"cpu": cpu} for cpu in (0.5, 1, 2, 4, 5)] + [{"cpu": 4, "memory": 1}, {"cpu": 1, "memory": 3}],
    "time_limit": [None, 10, 50, 50, 100, 1000],
    "target_policy": [None],
    "drivers": [()],
    "constraints": rarely(None, *CONSTRAINTS[7:], times_more=8),
    "region": [""],
    "resources": rarely((), ("x",), times_more=20),
}
BUSY_TARGETS: Choices = TARGETS | {
    "capacity": [{"cpu": 5}, {"cpu": 6}, {"cpu": 4}, {"cpu": 8, "memory": 4}, {"cpu": 7, "memory": 3}],
    "windows": [()],
    "cordoned": [False],
    "unready": [False],
}
BUSY_ORDERS: Choices = ORDERS | {
    "priority": [50, 50, 50, 90],
    "target_policy": [None],
    "not_before": [None],
    "paused": [False],
    "gang": [False, False, False, True],
}
About = Callable[[Job], bool]
Where = Callable[[Mapping[str, str]], bool]
RULES: tuple[tuple[str, About, Where], ...] = (
    ("job.labels.team == 'x'", lambda job: job.labels.get("team") == "x", lambda labels: True),
    ("target.labels.zone == 'a'", lambda job: True, lambda labels: labels.get("zone") == "a"),
    (
        "job.labels.team == 'y' && target.labels.zone == 'a'",
        lambda job: job.labels.get("team") == "y",
        lambda labels: labels.get("zone") == "a",
    ),
)
EFFECTS = (
    *(Effect(forbid=True), Effect(require=True), Effect(prefer=50), Effect(prefer=-100)),
    *(Effect(limit=1), Effect(limit=2), Effect(limit=3), Effect(priority=-60), Effect(priority=20)),
)
LAWS = [
    (Rule(name=f"r{at}{also}", when=when, then=effect), Law(f"r{at}{also}", effect, about, where))
    for also, effect in enumerate(EFFECTS)
    for at, (when, about, where) in enumerate(RULES)
    # A task's priority cannot hang on a target, and what requires something of targets must speak of them.
    if ("target" in when or not effect.require) and ("target" not in when or effect.priority is None)
]
QUOTAS = (
    {"ann": Quota(live_tasks=2)},
    {"*": Quota(quantities={"cpu": 3})},
    {"*": Quota(live_tasks=4), "bob": Quota(quantities={"memory": 2, "cpu": 8})},
)
DETOURS: Choices = {
    "avoid": [(), ("t0",), ("t1",), ("t1", "t2"), ("t0", "t1", "t2", "t3"), ("gone",)],
    "to": rarely("", "t0", "t2", times_more=4),
}
SETTINGS: Choices = {
    "cycle_budget": rarely(1000, 1, 3, 8, times_more=3),
    "placement": rarely("balance", "pack", times_more=2),
    "weights": rarely(Weights(), Weights(room=0), Weights(soft=100, interference=0), times_more=1),
    "quotas": rarely({}, *QUOTAS, times_more=4),
    "reservations": [0, 1, 8],
}
BUSY_SETTINGS: Choices = SETTINGS | {
    "cycle_budget": rarely(1000, 3, 8, times_more=5),
    "quotas": rarely({}, *QUOTAS, times_more=8),
    "reservations": [8, 8, 1],
}


def an_order(random: Random, at: int, pool: Sequence[Job], choices: Choices, *, preempts: bool) -> Order:
    said = drawn(random, choices)
    gang = said.pop("gang")
    found = tuple(
        ResolvedJob(job=msgspec.structs.replace(random.choice(pool), name=f"j{position}"), count=random.randint(1, 4))
        for position in range(random.randint(1, 2))
    )
    resources = tuple(Resource(name=name, key=name, value="1", unique=True) for name in UNIQUE)
    resolved = msgspec.json.encode(Resolved(jobs=found, resources=resources, gang=gang))
    digest = hashlib.sha256(resolved).hexdigest()
    return Order(
        id=f"o{at}",
        orchestration="push",
        tasks_total=sum(one.count for one in found),
        digest=digest,
        resolved_digest=digest,
        resolved=msgspec.Raw(resolved),
        **{**said, "preempts": preempts and said["preempts"]},
    )


@st.composite
def scenes(draw: st.DrawFn, *, preempts: bool = False) -> Scene:
    """`preempts`: some orders may displace others."""
    targets, kinds, orders, past, rules = draw(SIZES)
    random = Random(draw(SEEDS))
    busy = random.random() < 0.5
    of_jobs, of_targets, of_orders = (BUSY_JOBS, BUSY_TARGETS, BUSY_ORDERS) if busy else (JOBS, TARGETS, ORDERS)
    pool = [Job(command=("true",), **drawn(random, of_jobs)) for _ in range(kinds)]
    there = {name: drawn(random, of_targets) for name in NAMES[:targets]}
    unready = frozenset(name for name, said in there.items() if said.pop("unready"))
    scene = Scene(
        targets=tuple(Target(name=name, **said) for name, said in there.items()),
        unready=unready,
        orders=tuple(an_order(random, at, pool, of_orders, preempts=preempts) for at in range(orders)),
        running=(),
        failed=(),
        rules=tuple(random.sample(LAWS, rules)),
        settings=Settings(**drawn(random, BUSY_SETTINGS if busy else SETTINGS)),
    )
    return under_way(random, scene, 2 * past if busy else past, within_capacity=busy) if targets else scene


# Bytes hardly ever repeat, where numbers do.
SEEDS = st.binary(min_size=8, max_size=8)
# Targets, kinds of jobs, orders, tasks that were placed before, rules: large ones are more likely to show something.
SIZES = st.tuples(
    st.sampled_from([0, 1, 2, 2, 3, 3, 3, 4, 4, 4, 5, 6]),
    st.sampled_from([1, 2, 3, 4, 5, 6]),
    st.sampled_from([0, 1, 2, 3, 4, 5, 5, 6, 6, 7, 7, 8, 8]),
    st.sampled_from([0, 1, 2, 3, 4, 5, 6, 8, 10]),
    st.sampled_from([0, 0, 1, 2]),
)


def under_way(random: Random, scene: Scene, past: int, *, within_capacity: bool) -> Scene:
    """Some tasks run, some failed before; nobody holds what another holds.

    Where targets may have more than their capacity, somebody lowered it.
    """
    tasks = [
        (order.id, found.job.name, index)
        for order in scene.orders
        for found in scene.resolved(order.id).jobs
        for index in range(found.count)
    ]
    held: set[str] = set()
    running: list[Task] = []
    failed: list[Task] = []
    ages = [0, 0, 5, 20, 60] if within_capacity else [0, 5, 60, 500, 2000]
    for order, job, index in random.sample(tasks, min(past, len(tasks))):
        task = Task(order, job, index, random.choice(scene.targets).name, random.choice(ages))
        wanted = set(scene.job(order, job).resources)
        if within_capacity and not _fits(replace(scene, running=tuple(running)), task):
            continue
        if random.random() < (0.95 if within_capacity else 0.7) and not wanted & held:
            held |= wanted
            running.append(task)
        else:
            failed.append(replace(task, **drawn(random, DETOURS)))
    return replace(scene, orders=_sent(scene.orders, failed), running=tuple(running), failed=tuple(failed))


def _fits(scene: Scene, task: Task) -> bool:
    there = [scene.job(one.order, one.job) for one in (*scene.running, task) if one.target == task.target]
    target = next(target for target in scene.targets if target.name == task.target)
    capacity = target.capacity or {}
    return all(sum((job.requests or {}).get(name, 0) for job in there) <= most for name, most in capacity.items())


def _sent(orders: Sequence[Order], failed: Sequence[Task]) -> tuple[Order, ...]:
    """The orders with the wishes of who sends tasks to a target."""
    moves = {
        order.id: tuple(
            Move(job=task.job, index=task.index, attempt=1, to=task.to)
            for task in failed
            if task.to and task.order == order.id
        )
        for order in orders
    }
    return tuple(msgspec.structs.replace(order, moves=moves[order.id]) for order in orders)
