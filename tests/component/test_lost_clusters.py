"""Claims on a lost cluster, on a real etcd: kept until a stop is certain. The test plays users and joblets."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
from msgspec.structs import replace

from controlplane.controller_manager.target_controller import TargetController
from controlplane.model import silence
from controlplane.model.fulfilment import Fulfilment
from controlplane.model.order import Stopped
from controlplane.model.settings import Settings
from controlplane.store import keys
from tests.builders import OrderBuilder, a_session, a_target, an_order
from tests.clock import ManualClock
from tests.component.leader_stage import Replica, following, lead
from tests.component.leading_stage import Stage, leading
from tests.component.test_targets_flow import is_in, reasons
from tests.etcd import Etcd

QUICK = Settings(target_grace=0.5, kill_grace=0.5)


@pytest.fixture
async def stage(etcd: Etcd) -> AsyncIterator[Stage]:
    async with leading(etcd) as started:
        await started.write({keys.SETTINGS: QUICK})
        await join_cluster(started, "eu")
        yield started


async def join_cluster(replica: Replica, name: str) -> None:
    target, session = a_target(name, cpu=8), a_session(name, cpu=8)
    await replica.write(
        {
            keys.config("targets", name): replace(target, driver="kubernetes"),
            keys.live(name): replace(session, driver="kubernetes"),
        }
    )


def for_clusters() -> OrderBuilder:
    return an_order().with_image("registry.example/none:1")


async def placed(stage: Stage, builder: OrderBuilder, phase: str = "Running", count: int = 1) -> list[Fulfilment]:
    order = await stage.submit(builder)
    found = await stage.is_placed(order, count)
    for one in found:
        await stage.report(one, phase)
    return found


def claim(replica: Replica) -> str | None:
    found = replica.read(keys.CLAIMS, "licence")
    return found.fulfilment if found is not None else None


async def word(stage: Stage, one: Fulfilment, **change: Any) -> None:
    order = stage.read(keys.ORDERS, one.order)
    assert order is not None
    task = one.tasks[0]
    said = replace(Stopped(job=task.job, index=task.index, attempt=task.attempt), **change)
    await stage.write({keys.order(order.id): replace(order, stopped=(*order.stopped, said))})


async def test_what_holds_nothing_goes_to_others_and_a_holder_stays_with_its_claim(stage: Stage) -> None:
    (holder,) = await placed(stage, for_clusters().holding("licence").jobs(cpu=1))
    (plain,) = await placed(stage, for_clusters().jobs(cpu=1))
    waiting = await stage.submit(for_clusters().holding("licence").jobs(cpu=1))
    await stage.join("t2", cpu=8)
    await stage.write({keys.live("eu"): None})
    await stage.until(lambda: [one.target for one in stage.placed(plain.order)] == ["t2"])
    failed = await is_in(stage, "eu", "Failed")
    assert (failed.reason, failed.driver) == ("HoldersMayLive", "kubernetes")
    assert [one.id for one in stage.placed(holder.order)] == [holder.id]
    assert (claim(stage), stage.placed(waiting)) == (holder.id, [])


async def test_a_holder_that_was_never_started_goes_at_once(stage: Stage) -> None:
    order = await stage.submit(for_clusters().holding("licence").jobs(cpu=1))
    await stage.is_placed(order)
    await stage.join("t2", cpu=8)
    await stage.write({keys.live("eu"): None})
    await stage.until(lambda: [one.target for one in stage.placed(order)] == ["t2"])
    assert reasons(stage, order) == [("TargetLost", "retry")]


async def test_a_joblet_that_returns_confirms_the_stop(stage: Stage) -> None:
    (holder,) = await placed(stage, for_clusters().holding("licence").jobs(cpu=1))
    await stage.write({keys.live("eu"): None})
    await is_in(stage, "eu", "Failed")
    waiting = await stage.submit(for_clusters().holding("licence").jobs(cpu=1))
    await stage.write({keys.live("eu"): replace(a_session("eu", cpu=8), driver="kubernetes")})
    await is_in(stage, "eu", "Ready")
    assert claim(stage) == holder.id
    await stage.report(holder, "Succeeded")
    await stage.is_in(holder.order, "Succeeded")
    (next_one,) = await stage.is_placed(waiting)
    assert claim(stage) == next_one.id


@pytest.mark.parametrize("deleted", [False, True], ids=["lost", "lost and deleted"])
async def test_a_persons_word_gives_the_claim_to_the_next(stage: Stage, deleted: bool) -> None:
    (holder,) = await placed(stage, for_clusters().holding("licence").jobs(cpu=1))
    await stage.write({keys.live("eu"): None})
    await is_in(stage, "eu", "Failed")
    if deleted:
        await stage.write({keys.config("targets", "eu"): None})
    await stage.join("t2", cpu=8)
    await is_in(stage, "t2", "Ready")
    await word(stage, holder, attempt=7)
    (plain,) = await placed(stage, for_clusters().jobs(cpu=1))
    await stage.report(plain, "Succeeded")
    await stage.is_in(plain.order, "Succeeded")
    assert claim(stage) == holder.id
    await word(stage, holder)
    await stage.until(lambda: [one.target for one in stage.placed(holder.order)] == ["t2"])
    assert reasons(stage, holder.order) == [("TargetLost", "retry")]
    assert claim(stage) == stage.placed(holder.order)[0].id


async def test_a_time_limit_counts_from_when_the_leader_saw_the_cluster_silent(etcd: Etcd) -> None:
    async with leading(etcd) as first:
        await join_cluster(first, "eu")
        builder = for_clusters().holding("licence").jobs(cpu=1)
        (holder,) = await placed(first, builder)
        timed = {name: replace(spec, time_limit=100) for name, spec in holder.jobs.items()}
        await first.write({keys.desired("eu", holder.id): replace(holder, jobs=timed)})
        await first.term.end()
    async with following(etcd.endpoint, Replica) as second:
        _, writer = await lead(second)
        clock = ManualClock()
        targets = TargetController(second.ledgers, second.settling(writer), clock)
        await second.write({keys.live("eu"): None})
        grace = float(Settings().target_grace)

        async def look_until(phase: str) -> float | None:
            for _ in range(5):
                again = await targets.reconcile("eu")
                status = second.read(keys.TARGET_STATUS, "eu")
                if status is not None and status.phase == phase:
                    return again.after_seconds if again is not None else None
            raise AssertionError(f"it never is {phase}")

        await targets.reconcile("eu")
        clock.pass_seconds(grace)
        left = await look_until("Failed")
        end = 100 + max(grace, silence.POD_STOP_SECONDS)
        left = left if left is not None else (await targets.reconcile("eu")).after_seconds  # type: ignore[union-attr]
        assert left == pytest.approx(end - grace)
        clock.pass_seconds(end - grace - 1)
        await targets.reconcile("eu")
        assert claim(second) == holder.id
        clock.pass_seconds(1)
        await targets.reconcile("eu")
        assert claim(second) is None
        assert second.cache.snapshot.count(keys.DESIRED, "eu") == 0
