"""Scheduler and controllers of one term on a real etcd: from a submitted order to its end."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta

import msgspec
import pytest

from controlplane.aio.clock import SystemClock
from controlplane.model import times
from controlplane.model.errors import Deposed
from controlplane.model.order import Counts
from controlplane.model.settings import Settings
from controlplane.store import keys
from tests.builders import a_session, an_order
from tests.component.leader_stage import PATIENCE_SECONDS
from tests.component.leading_stage import Stage, leading
from tests.etcd import Etcd


@pytest.fixture
async def stage(etcd: Etcd) -> AsyncIterator[Stage]:
    async with leading(etcd) as started:
        yield started


async def test_a_new_leader_commits_a_first_cycle_even_an_empty_one(stage: Stage) -> None:
    (cycle,) = stage.cycles()
    assert (cycle.n, cycle.epoch, cycle.considered, cycle.placed) == (1, stage.term.epoch, 0, 0)


async def test_an_order_is_placed_runs_and_succeeds(stage: Stage) -> None:
    await stage.join("t1", cpu=4)
    order = await stage.submit(an_order().of(3).jobs(cpu=1))
    placed = await stage.is_placed(order, 3)
    assert {(one.target, one.epoch, one.tasks[0].attempt) for one in placed} == {("t1", stage.term.epoch, 1)}
    for one in placed:
        await stage.report(one, "Running")
    await stage.is_in(order, "Running")
    for one in placed:
        await stage.report(one, "Succeeded")
    await stage.is_in(order, "Succeeded")
    assert stage.placed(order) == []
    assert [entry.parts[1] for entry in stage.cache.snapshot.all(keys.INVENTORY, "t1")] == [keys.LIVE]
    assert [task.decision for end in stage.ended(order) for task in end.tasks] == ["done"] * 3


async def test_what_does_not_fit_waits_and_is_placed_when_room_is_made_the_most_urgent_first(stage: Stage) -> None:
    await stage.join("t1", cpu=1)
    first = await stage.submit(an_order().jobs(cpu=1))
    (running_one,) = await stage.is_placed(first)
    low = await stage.submit(an_order().jobs(cpu=1).with_priority(10))
    high = await stage.submit(an_order().jobs(cpu=1).with_priority(90))
    await stage.report(running_one, "Succeeded")
    await stage.is_placed(high)
    assert stage.placed(low) == []


async def test_a_unique_resource_has_one_holder_at_a_time_and_its_claim_goes_with_the_release(stage: Stage) -> None:
    await stage.join("t1", cpu=8)
    await stage.join("t2", cpu=8)
    order = await stage.submit(an_order().of(3).holding("licence").jobs(cpu=1))
    seen: list[str] = []
    for _ in range(3):
        await stage.until(lambda: any(one.id not in seen for one in stage.placed(order)))
        (one,) = stage.placed(order)
        claim = stage.read(keys.CLAIMS, "licence")
        assert claim is not None
        assert (claim.fulfilment, one.holds) == (one.id, ("licence",))
        seen.append(one.id)
        await stage.report(one, "Succeeded")
    await stage.is_in(order, "Succeeded")
    assert stage.read(keys.CLAIMS, "licence") is None


async def test_a_cancelled_order_stops_what_runs_and_ends_when_the_joblet_says_so(stage: Stage) -> None:
    await stage.join("t1", cpu=1)
    builder = an_order().of(2).jobs(cpu=1)
    order = await stage.submit(builder)
    (one,) = await stage.is_placed(order)
    await stage.write({keys.order(order): builder.cancelled().build()})
    await stage.until(lambda: [placed.want for placed in stage.placed(order)] == ["stop"])
    assert stage.phase(order) not in ("Cancelled", "Failed")
    await stage.report(one, "Cancelled", reason="Cancelled")
    await stage.is_in(order, "Cancelled")
    assert len(stage.ended(order)) == 1


async def test_a_failed_task_fails_its_order_and_a_lost_one_is_tried_again(stage: Stage) -> None:
    await stage.join("t1", cpu=1)
    failing = await stage.submit(an_order().jobs(cpu=1))
    (one,) = await stage.is_placed(failing)
    await stage.report(one, "Failed", reason="ExitCode")
    await stage.is_in(failing, "Failed")
    lost = await stage.submit(an_order().jobs(cpu=1))
    (first,) = await stage.is_placed(lost)
    await stage.report(first, "Failed", reason="Lost")
    await stage.until(lambda: [one.tasks[0].attempt for one in stage.placed(lost)] == [2])


async def test_a_job_begins_when_those_it_waits_for_succeeded(stage: Stage) -> None:
    await stage.join("t1", cpu=8)
    order = await stage.submit(an_order().of(2).jobs(cpu=1).after("job-0").jobs(cpu=1))
    first, second = await stage.is_placed(order, 2)
    await stage.report(first, "Succeeded")
    await stage.until(lambda: stage.placed(order) == [second])
    await stage.report(second, "Succeeded")
    await stage.until(lambda: [one.tasks[0].job for one in stage.placed(order)] == ["job-1"] * 2)
    for one in stage.placed(order):
        await stage.report(one, "Succeeded")
    await stage.is_in(order, "Succeeded")


async def test_an_order_ends_as_failed_when_all_that_is_left_waits_for_a_failed_job(stage: Stage) -> None:
    await stage.join("t1", cpu=8)
    order = await stage.submit(an_order().jobs(cpu=1).after("job-0").jobs(cpu=1).after("job-1").of(3).jobs(cpu=1))
    (one,) = await stage.is_placed(order)
    await stage.report(one, "Failed", reason="ExitCode")
    await stage.is_in(order, "Failed")
    status = stage.read(keys.ORDER_STATUS, order)
    assert status is not None
    assert status.counts == Counts(failed=1, cancelled=4)


async def test_an_order_is_placed_by_itself_when_its_time_has_come(stage: Stage) -> None:
    await stage.join("t1", cpu=8)
    moment = times.show(SystemClock().wall() + timedelta(seconds=0.5))
    order = await stage.submit(an_order().jobs(cpu=1).not_before(moment))
    (one,) = await stage.is_placed(order)
    assert one.created >= moment


async def test_what_was_preempted_is_tried_again_whatever_its_joblet_says(stage: Stage) -> None:
    await stage.join("t1", cpu=1)
    order = await stage.submit(an_order().jobs(cpu=1))
    (one,) = await stage.is_placed(order)
    wanted = msgspec.structs.replace(one, want="stop", reason="Preempted")
    await stage.write({keys.desired("t1", one.id): wanted})
    await stage.report(one, "Cancelled", reason="Cancelled")
    await stage.until(lambda: [placed.tasks[0].attempt for placed in stage.placed(order)] == [2])
    assert [(task.decision, task.reason) for end in stage.ended(order) for task in end.tasks] == [
        ("retry", "Preempted")
    ]


async def test_the_work_of_a_target_whose_joblet_is_gone_goes_to_another(stage: Stage) -> None:
    await stage.write({keys.SETTINGS: Settings(target_grace=0.2, kill_grace=0.1)})
    await stage.join("t1", cpu=2)
    order = await stage.submit(an_order().holding("licence").jobs(cpu=1).holding().jobs(cpu=1))
    await stage.is_placed(order, 2)
    await stage.join("t2", cpu=8)
    await stage.write({keys.live("t1"): None})
    await stage.until(lambda: {one.target for one in stage.placed(order)} == {"t2"} and len(stage.placed(order)) == 2)
    assert {task.reason for end in stage.ended(order) for task in end.tasks} == {"TargetLost"}
    assert all(one.tasks[0].attempt == 2 for one in stage.placed(order))
    status = stage.read(keys.TARGET_STATUS, "t1")
    assert status is not None
    assert status.phase == "Failed"
    await stage.write({keys.live("t1"): a_session("t1", cpu=2)})
    await stage.until(lambda: (s := stage.read(keys.TARGET_STATUS, "t1")) is not None and s.phase == "Ready")


async def test_a_big_job_is_placed_like_any_other(stage: Stage) -> None:
    await stage.join("t1", cpu=100)
    order = await stage.submit(an_order().of(40).with_env(BIG="x" * 60_000).jobs(cpu=1))
    await stage.is_placed(order, 40)


async def test_a_finished_order_is_cleaned_up_with_all_of_its_keys(stage: Stage) -> None:
    await stage.write({keys.SETTINGS: Settings(clean_up=0)})
    await stage.join("t1", cpu=200)
    order = await stage.submit(an_order().of(120).jobs(cpu=1))
    for one in await stage.is_placed(order, 120):
        await stage.report(one, "Succeeded")
    await stage.until(lambda: stage.cache.snapshot.get(keys.ORDERS, order) is None)
    assert stage.ended(order) == []
    assert stage.phase(order) == "Pending"


async def test_a_leader_that_is_deposed_stops_and_changes_nothing(stage: Stage) -> None:
    await stage.join("t1", cpu=1)
    await stage.term.end()
    order = await stage.submit(an_order().jobs(cpu=1))
    with pytest.raises(ExceptionGroup) as ended:
        await asyncio.wait_for(asyncio.shield(stage.work), PATIENCE_SECONDS)
    assert ended.group_contains(Deposed)
    assert stage.placed(order) == []


async def test_the_next_leader_goes_on_counting_cycles(etcd: Etcd) -> None:
    async with leading(etcd) as stage:
        await stage.join("t1", cpu=1)
        await stage.is_placed(await stage.submit(an_order().jobs(cpu=1)))
        await stage.until(lambda: len(stage.cycles()) == 2)
        await stage.term.end()
    async with leading(etcd) as other:
        await other.until(lambda: len(other.cycles()) >= 3)
        assert [cycle.n for cycle in other.cycles()][:3] == [1, 2, 3]
        assert other.cycles()[2].epoch == other.term.epoch
