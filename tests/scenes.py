"""Generated worlds with all features mixed: small, and drawn from few values, so that things meet.

Amounts are exact in binary, so that sums do not depend on their order. What is rare in a world is drawn rarely, since
a task that everything refuses tests nothing.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import timedelta
from typing import Any

import msgspec
from hypothesis import Phase, settings
from hypothesis import strategies as st

from controlplane.model import times
from controlplane.model.job import Constraint, Constraints, Job
from controlplane.model.order import Order, Resolved, ResolvedJob
from controlplane.model.resource import Resource
from controlplane.model.rule import Effect, Rule
from controlplane.model.settings import Quota, Settings, Weights
from controlplane.model.target import Target, Window
from tests.reference import Law
from tests.worlds import NOW, Scene, Task

Said = dict[str, Any]


def examples(count: int) -> settings:
    """Without the phase that looks for the guilty lines: a failing world is made small, which takes long enough."""
    phases = (Phase.explicit, Phase.reuse, Phase.generate, Phase.shrink)
    return settings(deadline=None, max_examples=count, phases=phases)


def rarely(usual: Any, *others: Any, times_more: int = 4) -> st.SearchStrategy[Any]:
    return st.sampled_from([usual] * times_more * len(others) + list(others))


NAMES = ("t0", "t1", "t2", "t3")
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
)
CONSTRAINTS = (
    *(Constraints(hard=(one,)) for one in ON_TARGETS),
    *(Constraints(soft=(one,)) for one in ON_TARGETS),
    Constraints(hard=(ON_TARGETS[2], ON_TARGETS[5])),
    Constraints(soft=(msgspec.structs.replace(ON_TARGETS[0], weight=0), ON_TARGETS[3])),
    Constraints(soft=(msgspec.structs.replace(ON_TARGETS[0], weight=20), ON_TARGETS[4])),
)
JOBS: st.SearchStrategy[Job] = st.fixed_dictionaries(
    {
        "labels": st.sampled_from([{}, {}, {"team": "x"}, {"team": "y"}]),
        "requests": st.sampled_from(
            [{"cpu": cpu} for cpu in (0, 0.5, 1, 1, 2, 3)] * 2
            + [{}, {"cpu": 1, "memory": 2}, {"memory": 3}, {"gpu": 1}]
        ),
        "time_limit": rarely(None, 10, 100, 1000, times_more=1),
        "target_policy": rarely(None, "any", "strict:t0", "strict:nowhere"),
        "drivers": rarely((), ("process",), ("kubernetes", "simulated")),
        "constraints": rarely(None, *CONSTRAINTS, times_more=2),
        "affinity": rarely((), *ON_JOBS),
        "anti_affinity": rarely((), *ON_JOBS),
        "spread": rarely(None, "order"),
        "region": rarely("", "eu", "us"),
        "prefer": rarely((), (("t1",),), (("t2", "t1"), ("t0",)), times_more=2),
        "exclusive": rarely(False, True, times_more=6),
        "class_": rarely("", "loud"),
        "hurt_by": rarely((), ("loud",)),
        "preemptible": st.booleans(),
        "resources": rarely((), ("x",), ("x", "y")),
    }
).map(lambda said: Job(command=("true",), **said))
TARGETS: st.SearchStrategy[Said] = st.fixed_dictionaries(
    {
        "driver": st.sampled_from(["process", "process", "simulated"]),
        "region": st.sampled_from(["eu", "us", ""]),
        "labels": st.sampled_from([{}, {"zone": "a", "size": "1"}, {"zone": "b", "size": "2"}, {"size": "big"}]),
        "capacity": st.sampled_from([{"cpu": cpu} for cpu in range(7)] + [{"cpu": 4, "memory": 4}, {"memory": 6}]),
        "max_fulfilments": rarely(None, 0, 1, 2, 3, times_more=2),
        "windows": rarely((), (OPEN,), (CLOSED,)),
        "cordoned": rarely(False, True, times_more=8),
        "unready": rarely(False, True, times_more=8),
    }
)
ORDERS: st.SearchStrategy[Said] = st.fixed_dictionaries(
    {
        "priority": st.sampled_from([10, 50, 50, 90]),
        "owner": st.sampled_from(["ann", "bob", "cat"]),
        "created": st.sampled_from([times.show(NOW - timedelta(seconds=age)) for age in (100, 200, 300)]),
        "deadline": rarely(None, 1000, 2000, times_more=2),
        "target_policy": rarely(None, "any", "strict:t1"),
        "not_before": rarely(None, times.show(NOW), times.show(NOW + timedelta(hours=1))),
        "paused": rarely(False, True, times_more=8),
        "gang": rarely(False, True),
        "preempts": st.booleans(),
        "jobs": st.lists(st.tuples(st.integers(0, 3), st.integers(1, 4)), min_size=1, max_size=2),
    }
)
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
    *(Effect(limit=1), Effect(limit=2), Effect(priority=-60), Effect(priority=20)),
)
LAWS = [
    (Rule(name=f"r{at}{also}", when=when, then=effect), Law(f"r{at}{also}", effect, about, where))
    for also, effect in enumerate(EFFECTS)
    for at, (when, about, where) in enumerate(RULES)
    # A task's priority cannot hang on a target, and what requires something of targets must speak of them.
    if ("target" in when or not effect.require) and ("target" not in when or effect.priority is None)
]
SOME_LAWS: st.SearchStrategy[list[int]] = st.one_of(
    st.just([]), st.lists(st.integers(0, len(LAWS) - 1), max_size=2, unique=True)
)
QUOTAS = (
    {"ann": Quota(live_tasks=2)},
    {"*": Quota(quantities={"cpu": 3})},
    {"*": Quota(live_tasks=4), "bob": Quota(quantities={"memory": 2, "cpu": 8})},
)
SETTINGS = st.fixed_dictionaries(
    {
        "cycle_budget": rarely(1000, 1, 3, 8, times_more=1),
        "placement": rarely("balance", "pack", times_more=2),
        "weights": rarely(Weights(), Weights(room=0), Weights(soft=100, interference=0), times_more=1),
        "quotas": rarely({}, *QUOTAS, times_more=2),
        "reservations": st.sampled_from([0, 1, 8]),
    }
).map(lambda said: Settings(**said))


def order_of(at: int, pool: list[Job], said: Said) -> Order:
    said = dict(said)
    gang, jobs = said.pop("gang"), said.pop("jobs")
    found = tuple(
        ResolvedJob(job=msgspec.structs.replace(pool[which % len(pool)], name=f"j{position}"), count=count)
        for position, (which, count) in enumerate(jobs)
    )
    resources = tuple(Resource(name=name, key=name, value="1", unique=True) for name in UNIQUE)
    resolved = msgspec.json.encode(Resolved(jobs=found, resources=resources, gang=gang))
    digest = hashlib.sha256(resolved).hexdigest()
    return Order(
        id=f"o{at}",
        orchestration="push",
        tasks_total=sum(count for _, count in jobs),
        digest=digest,
        resolved_digest=digest,
        resolved=msgspec.Raw(resolved),
        **said,
    )


@st.composite
def scenes(draw: st.DrawFn, *, preempts: bool = False) -> Scene:
    """`preempts`: some orders may displace others."""
    pool = draw(st.lists(JOBS, min_size=1, max_size=4))
    there = {NAMES[at]: said for at, said in enumerate(draw(st.lists(TARGETS, max_size=len(NAMES))))}
    orders = draw(st.lists(ORDERS, max_size=6))
    unready = frozenset(name for name, said in there.items() if said.pop("unready"))
    scene = Scene(
        targets=tuple(Target(name=name, **said) for name, said in there.items()),
        unready=unready,
        orders=tuple(
            order_of(at, pool, {**said, "preempts": preempts and said["preempts"]}) for at, said in enumerate(orders)
        ),
        running=(),
        failed=(),
        rules=tuple(LAWS[at] for at in draw(SOME_LAWS)),
        settings=draw(SETTINGS),
    )
    return draw(under_way(scene)) if there and orders else scene


PAST = st.lists(
    st.tuples(st.integers(0, 23), st.integers(0, 3), st.sampled_from([0, 5, 60, 500, 2000]), st.booleans()), max_size=8
)


@st.composite
def under_way(draw: st.DrawFn, scene: Scene) -> Scene:
    """Some tasks run, some failed before; nobody holds what another holds."""
    tasks = [
        (order.id, found.job.name, index)
        for order in scene.orders
        for found in scene.resolved(order.id).jobs
        for index in range(found.count)
    ]
    held: set[str] = set()
    running, failed = [], []
    for which, where, age, good in draw(PAST):
        if which >= len(tasks):
            continue
        order, job, index = tasks[which]
        tasks.pop(which)
        task = Task(order, job, index, scene.targets[where % len(scene.targets)].name, age)
        wanted = set(scene.job(order, job).resources)
        if good and not wanted & held:
            held |= wanted
            running.append(task)
        else:
            failed.append(task)
    return replace(scene, running=tuple(running), failed=tuple(failed))
