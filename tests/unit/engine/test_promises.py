"""P5 and P6 over generated worlds: what one cycle places, judged by looking at the result."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

import msgspec
from hypothesis import given

from controlplane.engine.decide import decide
from controlplane.engine.decision import Decision, Placement
from controlplane.model.job import Job
from controlplane.model.quantity import Number
from controlplane.model.selectors import match_all, matches
from controlplane.model.settings import Quota
from controlplane.survey.explaining import survey
from tests.chooser import whole
from tests.reference import STANDING, Group, State
from tests.reference_places import Place
from tests.scenes import examples, scenes
from tests.worlds import NOW, Scene

EPSILON = 1e-6


@dataclass(frozen=True)
class There:
    """A task on a target after the cycle; `new` when this cycle placed it."""

    order: str
    owner: str
    job: Job
    new: bool


def decided(scene: Scene) -> Decision:
    backlog, world = survey(scene.told().ledgers, NOW)
    return decide(world, backlog.queues())


def after(scene: Scene, placements: Iterable[Placement]) -> dict[str, list[There]]:
    found: dict[str, list[There]] = {target.name: [] for target in scene.targets}
    for task in scene.running:
        owner = scene.order(task.order).owner
        found[task.target].append(There(task.order, owner, scene.job(task.order, task.job), new=False))
    for one in placements:
        there = There(one.order, scene.order(one.order).owner, scene.job(one.order, one.job), new=True)
        found[one.target].extend([there] * one.count)
    return found


def new(tasks: Iterable[There]) -> list[There]:
    return [task for task in tasks if task.new]


def total(tasks: Iterable[There], name: str) -> Number:
    return sum((task.job.requests or {}).get(name, 0) for task in tasks)


def asked(tasks: Iterable[There]) -> set[str]:
    """Quantities of which the tasks want some."""
    return {name for task in tasks for name, amount in (task.job.requests or {}).items() if amount}


@examples(200)
@given(scenes(preempts=True))
def test_no_target_gets_more_than_its_capacity_and_its_slots(scene: Scene) -> None:
    there = after(scene, decided(scene).placements)
    for target in scene.targets:
        tasks = there[target.name]
        for name in asked(new(tasks)):
            assert total(tasks, name) <= (target.capacity or {}).get(name, 0) + EPSILON
        if new(tasks) and target.max_fulfilments is not None:
            assert len(tasks) <= target.max_fulfilments


@examples(200)
@given(scenes(preempts=True))
def test_nothing_goes_where_a_standing_filter_or_the_time_refuses_it(scene: Scene) -> None:
    state = scene.state()
    groups = {(group.order, group.job.name, group.policy, group.avoid): group for group in scene.groups()}
    places = {place.name: place for place in state.places}
    for one in decided(scene).placements:
        place = places[one.target]
        group = groups[one.order, one.job, one.signature.policy, one.signature.hint.avoid]
        assert place.ready
        assert place.opened
        assert not any(state.refuses(reason, group, place) for reason in (*STANDING, "AvoidedTarget"))


@examples(200)
@given(scenes(preempts=True))
def test_a_unique_resource_has_at_most_one_holder(scene: Scene) -> None:
    tasks = [task for some in after(scene, decided(scene).placements).values() for task in some]
    holders = Counter(name for task in tasks for name in task.job.resources)
    assert all(count == 1 for count in holders.values())


@examples(200)
@given(scenes(preempts=True))
def test_neighbours_are_as_each_of_them_asked(scene: Scene) -> None:
    for tasks in after(scene, decided(scene).placements).values():
        for at, task in enumerate(tasks):
            others = [other for other in (*tasks[:at], *tasks[at + 1 :]) if task.new or other.new]
            assert not (task.job.exclusive and others)
            assert not any(matches(one, other.job.labels) for one in task.job.anti_affinity for other in others)
            if task.job.spread == "order":
                assert not any(other.order == task.order and other.job.spread == "order" for other in others)
            if task.new and not match_all(task.job.affinity, task.job.labels):
                assert all(any(matches(one, other.job.labels) for other in others) for one in task.job.affinity)


@examples(200)
@given(scenes(preempts=True))
def test_no_rule_is_exceeded_that_limits_tasks_over_all_targets(scene: Scene) -> None:
    there = after(scene, decided(scene).placements)
    labels = {place.name: place.labels for place in scene.state().places}
    for law in scene.laws():
        counted = [
            task for name, tasks in there.items() if law.where(labels[name]) for task in tasks if law.about(task.job)
        ]
        if law.effect.limit is not None and new(counted):
            assert len(counted) <= law.effect.limit


@examples(200)
@given(scenes(preempts=True))
def test_no_owner_gets_more_than_its_quota(scene: Scene) -> None:
    tasks = [task for some in after(scene, decided(scene).placements).values() for task in some]
    for owner in {task.owner for task in new(tasks)}:
        mine = [task for task in tasks if task.owner == owner]
        quota = scene.settings.quotas.get(owner) or scene.settings.quotas.get("*") or Quota()
        assert quota.live_tasks is None or len(mine) <= quota.live_tasks
        for name in asked(new(mine)):
            assert total(mine, name) <= quota.quantities.get(name, float("inf")) + EPSILON


@examples(200)
@given(scenes(preempts=True))
def test_of_a_gang_all_that_waits_is_placed_or_nothing(scene: Scene) -> None:
    placed = placed_of(decided(scene).placements)
    for gang in {group.order for group in scene.groups() if group.gang}:
        waiting: Counter[str] = Counter()
        for group in scene.groups():
            waiting[group.job.name] += group.count if group.order == gang else 0
        done = {placed[gang, name] == count for name, count in waiting.items() if count}
        assert done == {True} or not any(placed[gang, name] for name in waiting)


@examples(200)
@given(scenes(preempts=True))
def test_no_cycle_places_more_than_its_budget_but_for_one_gang_that_comes_first(scene: Scene) -> None:
    decision = decided(scene)
    if decision.placed() > scene.settings.cycle_budget:
        assert len({one.order for one in decision.placements}) == 1
        assert all(one.gang for one in decision.placements)


def placed_of(placements: Iterable[Placement]) -> Counter[tuple[str, str]]:
    counts: Counter[tuple[str, str]] = Counter()
    for one in placements:
        counts[one.order, one.job] += one.count
    return counts


# P6 -----------------------------------------------------------------------------------------------------------------


def state_with(scene: Scene, groups: Iterable[Group], placements: Iterable[Placement]) -> State:
    """What is there when only these were placed. Nothing is kept for anybody."""
    state = scene.state()
    known = {(group.order, group.job.name): group for group in groups}
    places = {place.name: place for place in state.places}
    for one in placements:
        for _ in range(one.count):
            state.put(known[one.order, one.job], places[one.target])
    return state


def could_go(state: State, group: Group, places: Iterable[str]) -> bool:
    return (
        state.quota(group) > 0
        and state.at_once(group) > 0
        and any(state.refusal(group, place) is None for place in state.places if place.name in places)
    )


def in_company(state: State, group: Group, place: Place) -> bool:
    return not state.refuses("Affinity", group, place)


def overtaken(scene: Scene, decision: Decision, group: Group, lower: set[str]) -> bool:
    """Whether the group could have had room on one of these targets, all that is lower taken away."""
    groups = scene.groups()
    priority = {(one.order, one.job.name): one.priority for one in groups}
    rest = [one for one in decision.placements if priority[one.order, one.job] >= group.priority]
    state = state_with(scene, groups, rest)
    if group.gang:
        return whole(state, [one for one in groups if one.order == group.order]) is None
    # Company that came in this very cycle, with work of the same priority, counts from the next one on.
    company = state_with(scene, groups, [one for one in rest if priority[one.order, one.job] > group.priority])
    return could_go(state, group, {place.name for place in company.places if in_company(company, group, place)} & lower)


def waiting_with_lower(scene: Scene, decision: Decision) -> Iterator[tuple[Group, list[Placement]]]:
    """Every group that was not placed wholly, with all that was placed and is lower."""
    groups = scene.groups()
    priority = {(group.order, group.job.name): group.priority for group in groups}
    placed = placed_of(decision.placements)
    for group in groups:
        lower = [one for one in decision.placements if priority[one.order, one.job] < group.priority]
        if lower and placed[group.order, group.job.name] < group.count:
            yield group, lower


@examples(300)
@given(scenes())
def test_nothing_is_placed_while_higher_work_waits_that_could_have_used_the_room(scene: Scene) -> None:
    """Where no room is kept for anybody."""
    scene = replace(scene, settings=msgspec.structs.replace(scene.settings, reservations=0))
    decision = decided(scene)
    for group, lower in waiting_with_lower(scene, decision):
        assert not overtaken(scene, decision, group, {one.target for one in lower})


@examples(300)
@given(scenes(preempts=True))
def test_room_that_is_kept_from_higher_work_is_used_by_lower_work_only_if_that_ends_sooner(scene: Scene) -> None:
    decision = decided(scene)
    for group, lower in waiting_with_lower(scene, decision):
        longer = {one.target for one in lower if ends(scene.job(one.order, one.job)) >= ends(group.job)}
        assert group.gang or not overtaken(scene, decision, group, longer)


def ends(job: Job) -> float:
    return math.inf if job.time_limit is None else float(job.time_limit)
