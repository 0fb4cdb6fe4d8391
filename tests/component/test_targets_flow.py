"""Targets of one term on a real etcd: cordoned, drained, deleted, lost and back. The test plays users and joblets."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest

from controlplane.model.fulfilment import Fulfilment
from controlplane.model.settings import Settings
from controlplane.model.target import TargetStatus
from controlplane.store import keys
from tests.builders import a_session, a_target, an_order
from tests.component.leading_stage import Stage, leading
from tests.etcd import Etcd

QUICK = Settings(target_grace=0.5, kill_grace=0.5)


@pytest.fixture
async def stage(etcd: Etcd) -> AsyncIterator[Stage]:
    async with leading(etcd) as started:
        yield started


def status_of(stage: Stage, target: str) -> TargetStatus | None:
    return stage.read(keys.TARGET_STATUS, target)


async def is_in(stage: Stage, target: str, phase: str) -> TargetStatus:
    await stage.until(lambda: (found := status_of(stage, target)) is not None and found.phase == phase)
    found = status_of(stage, target)
    assert found is not None
    return found


async def wish(stage: Stage, target: str, **wishes: Any) -> None:
    there = stage.read(keys.TARGETS, target)
    assert there is not None
    await stage.write({keys.config("targets", target): msgspec.structs.replace(there, **wishes)})


def reasons(stage: Stage, order: str) -> list[tuple[str, str]]:
    return [(task.reason, task.decision) for end in stage.ended(order) for task in end.tasks]


def stopped(stage: Stage, order: str) -> list[Fulfilment]:
    return [one for one in stage.placed(order) if one.want == "stop"]


async def test_a_cordoned_target_keeps_its_work_and_gets_nothing_new(stage: Stage) -> None:
    await stage.join("t1", cpu=4)
    order = await stage.submit(an_order().jobs(cpu=1))
    (one,) = await stage.is_placed(order)
    await wish(stage, "t1", cordoned=True)
    await is_in(stage, "t1", "Cordoned")
    waiting = await stage.submit(an_order().jobs(cpu=1))
    await stage.report(one, "Succeeded")
    await stage.is_in(order, "Succeeded")
    assert stage.placed(waiting) == []
    await wish(stage, "t1", cordoned=False)
    await stage.is_placed(waiting)


async def test_a_drained_target_lets_its_work_end_in_its_own_time(stage: Stage) -> None:
    await stage.join("t1", cpu=4)
    order = await stage.submit(an_order().jobs(cpu=1))
    (one,) = await stage.is_placed(order)
    await wish(stage, "t1", drain=True)
    draining = await is_in(stage, "t1", "Draining")
    assert draining.drain_since == draining.since
    assert stopped(stage, order) == []
    await stage.report(one, "Succeeded")
    drained = await is_in(stage, "t1", "Drained")
    assert drained.drain_since == draining.since
    waiting = await stage.submit(an_order().jobs(cpu=1))
    await wish(stage, "t1", drain=False)
    await stage.is_placed(waiting)
    ready = await is_in(stage, "t1", "Ready")
    assert ready.drain_since == ""


async def test_what_has_not_ended_when_the_drain_is_over_is_evicted_and_tried_elsewhere(stage: Stage) -> None:
    await stage.join("t1", cpu=4)
    order = await stage.submit(an_order().of(2).jobs(cpu=1))
    await stage.is_placed(order, 2)
    await stage.join("t2", cpu=4)
    await is_in(stage, "t2", "Ready")
    await wish(stage, "t1", drain=True, drain_timeout=0.3)
    await stage.until(lambda: len(stopped(stage, order)) == 2)
    assert {one.reason for one in stopped(stage, order)} == {"Evicted"}
    assert (await is_in(stage, "t1", "Draining")).phase == "Draining"
    for one in stopped(stage, order):
        await stage.report(one, "Cancelled", reason="Withdrawn")
    await is_in(stage, "t1", "Drained")
    await stage.until(lambda: [one.target for one in stage.placed(order)] == ["t2", "t2"])
    assert reasons(stage, order) == [("Evicted", "retry")] * 2


async def test_a_change_of_leaders_does_not_start_a_drain_anew(etcd: Etcd) -> None:
    async with leading(etcd) as first:
        await first.join("t1", cpu=4)
        order = await first.submit(an_order().jobs(cpu=1))
        await first.is_placed(order)
        await wish(first, "t1", drain=True, drain_timeout=3600)
        await is_in(first, "t1", "Draining")
        await first.term.end()
    async with leading(etcd) as second:
        before = await is_in(second, "t1", "Draining")
        assert stopped(second, order) == []
        # As if the wish had been there for two hours already.
        old = msgspec.structs.replace(before, drain_since="2020-01-01T00:00:00.000Z")
        await second.write({keys.target_status("t1"): old})
        await second.until(lambda: bool(stopped(second, order)))


async def test_a_deleted_target_is_gone_and_then_away(stage: Stage) -> None:
    await stage.join("t1", cpu=4)
    await is_in(stage, "t1", "Ready")
    seen: list[str] = []
    stage.cache.subscribe(
        lambda deltas, _revision: seen.extend(
            "away" if delta.new is None else delta.new.read().phase
            for delta in deltas
            if delta.tree == keys.TARGET_STATUS
        )
    )
    await stage.write({keys.config("targets", "t1"): None})
    await stage.until(lambda: status_of(stage, "t1") is None)
    assert seen == ["Gone", "away"]
    await stage.join("t1", cpu=4)
    await is_in(stage, "t1", "Ready")


async def test_what_was_placed_when_its_target_was_deleted_is_evicted(stage: Stage) -> None:
    await stage.join("t1", cpu=4)
    order = await stage.submit(an_order().jobs(cpu=1))
    (one,) = await stage.is_placed(order)
    await stage.write({keys.config("targets", "t1"): None})
    await stage.until(lambda: bool(stopped(stage, order)))
    await stage.report(one, "Cancelled")
    await stage.until(lambda: status_of(stage, "t1") is None)
    assert reasons(stage, order) == [("Evicted", "retry")]


async def test_a_target_that_returns_gets_nothing_before_its_old_work_is_dead(stage: Stage) -> None:
    await stage.write({keys.SETTINGS: QUICK})
    await stage.join("t1", cpu=4)
    order = await stage.submit(an_order().jobs(cpu=1))
    await stage.is_placed(order)
    await stage.write({keys.live("t1"): None})
    suspect = await is_in(stage, "t1", "Suspect")
    assert suspect.reason == "JobletSilent"
    await is_in(stage, "t1", "Failed")
    await stage.until(lambda: reasons(stage, order) == [("TargetLost", "retry")])
    dying = msgspec.structs.replace(a_session("t1", cpu=4), leftovers=1)
    await stage.write({keys.live("t1"): dying})
    await stage.until(lambda: (found := status_of(stage, "t1")) is not None and found.reason == "StopsOldWork")
    assert (await is_in(stage, "t1", "Failed")).phase == "Failed"
    assert stage.placed(order) == []
    await stage.write({keys.live("t1"): msgspec.structs.replace(dying, leftovers=0)})
    await is_in(stage, "t1", "Ready")
    await stage.is_placed(order)


async def test_work_is_not_given_away_before_the_time_that_a_session_was_promised(etcd: Etcd) -> None:
    """Also by a leader that never saw the session, and after the settings were changed."""
    async with leading(etcd) as first:
        await first.join("t1", cpu=4)
        await first.write({keys.live("t1"): msgspec.structs.replace(a_session("t1", cpu=4), stop_within=7200)})
        await first.until(lambda: (found := status_of(first, "t1")) is not None and found.stop_within == 7200)
        order = await first.submit(an_order().jobs(cpu=1))
        await first.is_placed(order)
        await first.term.end()
    async with leading(etcd) as second:
        await second.write({keys.SETTINGS: QUICK, keys.live("t1"): None})
        # One that was promised nothing is lost in the same time.
        await second.join("t2", cpu=4)
        await is_in(second, "t2", "Ready")
        await second.write({keys.live("t2"): None})
        await is_in(second, "t2", "Failed")
        assert (await is_in(second, "t1", "Suspect")).stop_within == 7200
        assert len(second.placed(order)) == 1


async def test_a_target_is_called_suspect_only_after_the_set_time_and_gets_nothing_meanwhile(stage: Stage) -> None:
    await stage.write({keys.SETTINGS: Settings(target_suspect=600, target_grace=3600)})
    await stage.join("t1", cpu=4)
    await is_in(stage, "t1", "Ready")
    await stage.write({keys.live("t1"): None})
    await stage.join("t2", cpu=1)
    order = await stage.submit(an_order().of(2).jobs(cpu=1))
    (one,) = await stage.is_placed(order)
    assert one.target == "t2"
    assert (await is_in(stage, "t1", "Ready")).phase == "Ready"
    await stage.write({keys.SETTINGS: Settings(target_suspect=0, target_grace=3600)})
    await is_in(stage, "t1", "Suspect")


async def test_a_target_that_cannot_be_read_keeps_its_work(stage: Stage) -> None:
    await stage.join("t1", cpu=4)
    order = await stage.submit(an_order().jobs(cpu=1))
    (one,) = await stage.is_placed(order)
    await stage.write({keys.config("targets", "t1"): b"{"})
    await is_in(stage, "t1", "Cordoned")
    assert stopped(stage, order) == []
    await stage.report(one, "Succeeded")
    await stage.is_in(order, "Succeeded")
    await stage.write({keys.config("targets", "t1"): a_target("t1", cpu=4)})
    await is_in(stage, "t1", "Ready")
