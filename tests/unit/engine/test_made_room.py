"""Room that was made by stopping work belongs to the order that it was made for, until that order has used it."""

from __future__ import annotations

from typing import Any

from controlplane.model.fulfilment import Preemption
from controlplane.model.settings import Quota
from controlplane.store import keys
from tests.engine_stage import Stage, a_job

HIGH: dict[str, Any] = {"priority": 90, "preempts": True}
WHOLE: dict[str, Any] = {"requests": {"cpu": 4}}


def a_stage(**settings: Any) -> Stage:
    stage = Stage(**settings)
    stage.target("t1")
    return stage


def records(stage: Stage) -> list[Preemption]:
    return [entry.read() for entry in stage.told.ledgers.cache.snapshot.all(keys.PREEMPTIONS)]


def full_of_low_work(stage: Stage, *, tasks: int = 1, cpu: float = 4, **said: Any) -> str:
    low = stage.submit((tasks, a_job("low", preemptible=True, requests={"cpu": cpu}, **said)), priority=10)
    stage.cycle()
    assert stage.where(low).total() == tasks
    return low


def test_the_order_for_which_work_is_stopped_is_on_record_until_it_has_the_room() -> None:
    stage = a_stage()
    low = full_of_low_work(stage)
    stopped = stage.live(low)[0].id
    high = stage.submit((1, a_job("high", **WHOLE)), owner="ann", **HIGH)
    stage.cycle()
    assert records(stage) == [
        Preemption(fulfilment=stopped, order=low, target="t1", by=high, job="high", room=stopped, epoch=1, cycle=2)
    ]
    stage.cycle()
    assert len(records(stage)) == 1
    stage.stop()
    stage.cycle()
    assert stage.where(high) == {"t1": 1}
    assert not records(stage)


def test_work_of_the_same_priority_does_not_take_the_room_though_its_owner_has_less() -> None:
    stage = a_stage()
    stage.target("t2")
    stage.submit((1, a_job("much", **WHOLE)), owner="ann", target_policy="strict:t2", priority=95)
    full_of_low_work(stage)
    high = stage.submit((1, a_job("high", **WHOLE)), owner="ann", **HIGH)
    assert len(stage.cycle().evictions) == 1
    rival = stage.submit((1, a_job("rival", **WHOLE)), owner="bob", **HIGH)
    assert not stage.cycle().evictions
    stage.stop()
    stage.cycle()
    assert stage.where(high) == {"t1": 1}
    assert not stage.live(rival)


def test_work_of_a_higher_priority_goes_first() -> None:
    stage = a_stage()
    full_of_low_work(stage)
    high = stage.submit((1, a_job("high", **WHOLE)), **HIGH)
    stage.cycle()
    higher = stage.submit((1, a_job("higher", **WHOLE)), priority=95)
    stage.stop()
    stage.cycle()
    assert stage.where(higher) == {"t1": 1}
    assert not stage.live(high)
    assert not records(stage)


def test_quota_and_unique_resources_are_kept_for_the_task_while_the_room_is_not_free() -> None:
    stage = a_stage(quotas={"ann": Quota(live_tasks=1)})
    stage.target("t2")
    full_of_low_work(stage, target_policy="strict:t1")
    high = stage.submit((1, a_job("high", target_policy="strict:t1", resources=("lic",), **WHOLE)), owner="ann", **HIGH)
    assert len(stage.cycle().evictions) == 1
    same_owner = stage.submit((1, a_job("other")), owner="ann", priority=90)
    same_resource = stage.submit((1, a_job("other", resources=("lic",))), owner="bob", priority=90)
    stage.cycle()
    assert not stage.live(same_owner)
    assert not stage.live(same_resource)
    stage.stop()
    stage.cycle()
    assert stage.where(high) == {"t1": 1}


def test_nobody_more_is_stopped_for_a_task_that_waits_for_its_room() -> None:
    stage = a_stage()
    stage.target("t2")
    full_of_low_work(stage, tasks=2)
    stage.submit((1, a_job("high", **WHOLE)), **HIGH)
    assert len(stage.cycle().evictions) == 1
    assert not stage.cycle().evictions
    assert not stage.cycle().evictions


def test_a_second_task_of_the_order_has_work_stopped_for_it_beside_the_first() -> None:
    stage = a_stage()
    stage.target("t2")
    full_of_low_work(stage, tasks=2)
    first = stage.submit((1, a_job("high", **WHOLE)), **HIGH)
    assert len(stage.cycle().evictions) == 1
    second = stage.submit((1, a_job("high", **WHOLE)), **HIGH)
    assert {eviction.by for eviction in stage.cycle().evictions} == {second}
    stage.stop()
    stage.cycle()
    assert stage.where(first).total() == stage.where(second).total() == 1


def test_room_that_several_fulfilments_make_together_is_kept_until_the_last_has_ended() -> None:
    stage = a_stage()
    low = full_of_low_work(stage, tasks=4, cpu=1)
    high = stage.submit((1, a_job("high", **WHOLE)), owner="ann", **HIGH)
    assert len(stage.cycle().evictions) == 4
    assert len({record.room for record in records(stage)}) == 1
    first, *others = stage.live(low)
    stage.end(first, phase="Failed", decision="retry")
    rival = stage.submit((1, a_job("rival")), owner="bob", **HIGH)
    stage.cycle()
    assert not stage.live(rival)
    assert len(records(stage)) == 4
    stage.end(*others, phase="Failed", decision="retry")
    stage.cycle()
    assert stage.where(high) == {"t1": 1}
    assert not records(stage)


def test_the_record_goes_when_the_order_wants_the_room_no_more() -> None:
    stage = a_stage()
    full_of_low_work(stage)
    high = stage.submit((1, a_job("high", **WHOLE)), **HIGH)
    stage.cycle()
    stage.told.write({keys.order(high): None})
    stage.cycle()
    assert not records(stage)


def test_the_record_goes_when_the_order_cannot_use_the_room_in_the_end() -> None:
    stage = a_stage()
    full_of_low_work(stage)
    stage.submit((1, a_job("high", **WHOLE)), **HIGH)
    stage.cycle()
    stage.stop()
    stage.target("t1", cpu=2)
    rival = stage.submit((1, a_job("rival")), priority=90)
    stage.cycle()
    assert not records(stage)
    assert stage.where(rival) == {"t1": 1}


def test_a_gang_has_the_room_that_was_made_for_it() -> None:
    stage = a_stage()
    stage.target("t2")
    stage.submit((1, a_job("much")), owner="ann", priority=95)
    full_of_low_work(stage, tasks=2, cpu=3)
    gang = stage.submit((2, a_job("gang", requests={"cpu": 3})), gang=True, owner="ann", **HIGH)
    assert len(stage.cycle().evictions) == 2
    rival = stage.submit((1, a_job("rival", requests={"cpu": 3})), owner="bob", **HIGH)
    stage.cycle()
    stage.stop()
    stage.cycle()
    assert stage.where(gang) == {"t1": 1, "t2": 1}
    assert not stage.live(rival)


def test_a_gang_with_several_rooms_has_them_when_nobody_else_of_its_priority_waits() -> None:
    stage = a_stage()
    stage.target("t2")
    low = full_of_low_work(stage, tasks=2)
    gang = stage.submit((2, a_job("gang", **WHOLE)), gang=True, **HIGH)
    assert len(stage.cycle().evictions) == 2
    stage.stop()
    stage.cycle()
    assert stage.where(gang) == {"t1": 1, "t2": 1}
    assert not stage.live(low)
    assert not records(stage)


def test_a_record_that_names_strangers_is_dropped_and_changes_nothing() -> None:
    stage = a_stage()
    record = Preemption(fulfilment="f", order="o", target="t1", by="nobody", job="j", room="f", epoch=1, cycle=1)
    stage.told.write({keys.preemption("t1", "f"): record, keys.preemption("gone", "f"): b'{"kind":"Preemption"}'})
    order = stage.submit((1, a_job()))
    stage.cycle()
    assert stage.where(order) == {"t1": 1}
    assert not stage.told.ledgers.cache.snapshot.count(keys.PREEMPTIONS, "t1")
