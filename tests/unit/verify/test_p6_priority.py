"""P6: what is decided again must be the same, and nobody is overtaken by lower work in room he could have used."""

from __future__ import annotations

import pytest

from controlplane.model.quantity import Number
from controlplane.replay import Replayed
from controlplane.store import keys
from controlplane.verify.p6_priority import PlacedGroup, ReplayedCycle, UnplacedGroup, judge


def replayed(*, got: str = "a") -> Replayed:
    return Replayed(
        cycle=7, epoch=3, revision=99, engine="e", expected="a", got=got, same=got == "a", placed=1, considered=2
    )  # fmt: skip


def placed(target: str = "eu", *, priority: int = 50, count: int = 1, **requests: Number) -> PlacedGroup:
    return PlacedGroup("low", "job", target, count, priority, requests)


def waiting(*targets: str, priority: int = 90, **requests: Number) -> UnplacedGroup:
    return UnplacedGroup("high", "job", priority, requests, frozenset(targets))


def test_cycles_that_are_decided_the_same_again_keep_the_promise() -> None:
    verdict = judge([ReplayedCycle(replayed()), ReplayedCycle(replayed())])
    assert (verdict.ok, verdict.checked) == (True, 2)


def test_a_cycle_that_is_decided_otherwise_breaks_it() -> None:
    verdict = judge([ReplayedCycle(replayed(got="b"))])
    assert verdict.ok is False
    assert (verdict.violations[0].key, verdict.violations[0].revision) == (keys.cycle(3, 7), 99)


def test_lower_work_in_room_that_a_waiting_task_could_have_used_breaks_it() -> None:
    lower = (placed(cpu=1, count=2), placed(cpu=2, priority=60))
    verdict = judge([ReplayedCycle(replayed(), lower, (waiting("eu", cpu=4),))])
    assert verdict.ok is False
    assert (
        verdict.violations[0].why == "high/job with priority 90 waits, while low/job with priority 50 was placed on eu"
    )


@pytest.mark.parametrize(
    ("done", "left"),
    [
        (placed(cpu=4), waiting("eu", cpu=5)),  # too little room
        (placed(cpu=4), waiting("eu", cpu=1, gpu=1)),  # of another quantity
        (placed(cpu=4), waiting("us", cpu=4)),  # on a target that does not take it
        (placed(cpu=4, priority=90), waiting("eu", cpu=4)),  # taken by its equal
        (placed(cpu=4, priority=95), waiting("eu", cpu=4)),  # taken by its better
    ],
)
def test_room_that_a_waiting_task_could_not_have_used_is_free_for_all(done: PlacedGroup, left: UnplacedGroup) -> None:
    assert judge([ReplayedCycle(replayed(), (done,), (left,))]).ok is True


def test_without_a_cycle_to_repeat_nothing_is_known() -> None:
    verdict = judge([], "cycle 3 saw revision 5, which etcd does not remember any more")
    assert (verdict.ok, verdict.why) == (None, "cycle 3 saw revision 5, which etcd does not remember any more")
