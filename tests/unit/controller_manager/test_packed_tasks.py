"""One task among several in a fulfilment: its own end, its own stop, its own next attempt."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from controlplane.cache.ledger import OrderLedger
from controlplane.controller_manager import order_controller
from controlplane.joblet.reconcile import decide, fold, observed_task
from controlplane.model.fulfilment import Ended, Fulfilment, Observed, ObservedTask, TaskRef, TaskStop
from controlplane.model.order import Move, TaskSelection
from controlplane.model.task import ENDED
from controlplane.store import codec, keys
from controlplane.store.transaction import Item
from tests.builders import NOW, a_fulfilment, an_order
from tests.picture import Told

REFS = tuple(TaskRef(job="job-0", index=index, attempt=1) for index in range(3))


class Stage:
    """An order of three tasks that share a fulfilment."""

    def __init__(self) -> None:
        self.told = Told()
        self.order = an_order().packed(3).of(3).jobs(cpu=1).build()
        self.told.write({keys.order(self.order.id): self.order})
        self.placed = a_fulfilment(self.order.id).task(0).task(1).task(2).requesting(cpu=3).build()
        self.place = keys.desired("t1", self.placed.id)
        self.told.write({self.place: self.placed})

    @property
    def ledger(self) -> OrderLedger:
        return self.told.ledgers.orders[self.order.id]

    def wish(self, **wishes: Any) -> None:
        self.told.write({keys.order(self.order.id): msgspec.structs.replace(self.order, **wishes)})

    def report(self, *phases: str, reasons: tuple[str, ...] = ("", "", "")) -> None:
        tasks = tuple(
            msgspec.structs.replace(observed_task(ref, phase, reason=why), finished=NOW if phase in ENDED else "")
            for ref, phase, why in zip(REFS, phases, reasons, strict=True)
        )
        report = Observed(id=self.placed.id, target="t1", session="s", report=1, phase=fold(list(phases)), tasks=tasks)
        self.told.write({keys.observed("t1", self.placed.id): report})

    def plan(self) -> list[Item]:
        return order_controller.plan(self.ledger, epoch=7, now=NOW)

    def asked(self) -> Fulfilment:
        """What the one write asks of the joblet; it happens."""
        (item,) = self.plan()
        (operation,) = item.then
        assert operation.key.decode() == self.place
        assert operation.value is not None
        wanted = codec.decode(operation.value, Fulfilment)
        self.told.write({self.place: wanted})
        return wanted

    def ended(self) -> dict[int, tuple[str, str, int]]:
        (item,) = self.plan()
        value = next(one.value for one in item.then if one.key.decode() == keys.ended(self.order.id, self.placed.id))
        assert value is not None
        return {task.index: (task.decision, task.reason, task.attempt) for task in codec.decode(value, Ended).tasks}


def test_each_task_is_judged_by_itself() -> None:
    stage = Stage()
    stage.report("Succeeded", "Failed", "Failed", reasons=("", "Evicted", "Failed"))
    assert stage.ended() == {0: ("done", "", 1), 1: ("retry", "Evicted", 1), 2: ("fail", "Failed", 1)}


def test_a_fulfilment_is_released_when_the_last_of_its_tasks_has_ended() -> None:
    stage = Stage()
    stage.report("Succeeded", "Failed", "Running")
    assert stage.plan() == []
    counts = stage.ledger.counts()
    assert (counts.placed, counts.running, counts.pending) == (0, 3, 0)
    assert stage.ledger.percent() == 66


def test_one_task_that_its_user_cancels_is_stopped_alone_and_once() -> None:
    stage = Stage()
    stage.report("Running", "Running", "Running")
    stage.wish(cancel_tasks=(TaskSelection(job="job-0", index=1),))
    wanted = stage.asked()
    assert (wanted.want, wanted.epoch, wanted.tasks) == ("run", 7, stage.placed.tasks)
    assert wanted.stop == (TaskStop(job="job-0", index=1, reason="Cancelled"),)
    assert stage.plan() == []
    stage.report("Succeeded", "Cancelled", "Succeeded")
    assert stage.ended() == {0: ("done", "", 1), 1: ("cancel", "Cancelled", 1), 2: ("done", "", 1)}


def test_one_task_that_is_moved_leaves_its_neighbours_where_they_are() -> None:
    stage = Stage()
    stage.report("Running", "Running", "Running")
    stage.wish(moves=(Move(job="job-0", index=0, attempt=1),))
    assert stage.asked().stop == (TaskStop(job="job-0", index=0, reason="Moved"),)
    stage.report("Cancelled", "Succeeded", "Failed", reasons=("Moved", "", "Failed"))
    assert stage.ended() == {0: ("move", "Moved", 1), 1: ("done", "", 1), 2: ("fail", "Failed", 1)}


def test_a_second_wish_is_added_to_the_first() -> None:
    stage = Stage()
    stage.wish(cancel_tasks=(TaskSelection(job="job-0", index=1),))
    stage.asked()
    stage.wish(cancel_tasks=(TaskSelection(job="job-0", index=1), TaskSelection(job="job-0", index=2)))
    assert [one.index for one in stage.asked().stop] == [1, 2]


def test_what_has_ended_by_itself_is_not_asked_to_stop() -> None:
    stage = Stage()
    stage.report("Running", "Succeeded", "Running")
    stage.wish(cancel_tasks=(TaskSelection(job="job-0", index=1),))
    assert stage.plan() == []


def test_an_order_that_is_cancelled_stops_the_whole() -> None:
    stage = Stage()
    stage.wish(cancel=True)
    wanted = stage.asked()
    assert (wanted.want, wanted.reason, wanted.stop) == ("stop", "Cancelled", ())


# The joblet's side


def desired(**said: Any) -> Fulfilment:
    return Fulfilment(id="F", epoch=1, cycle=1, order="O", target="T", tasks=REFS, **said)


def stored(*phases: str) -> Observed:
    tasks = tuple(observed_task(ref, phase) for ref, phase in zip(REFS, phases, strict=True))
    return Observed(id="F", target="T", session="S", report=1, phase=fold(list(phases)), tasks=tasks)


def seen(*phases: str) -> dict[TaskRef, ObservedTask]:
    return {ref: observed_task(ref, phase) for ref, phase in zip(REFS, phases, strict=True)}


def test_the_joblet_stops_that_task_and_no_other() -> None:
    wanted = desired(stop=(TaskStop(job="job-0", index=1, reason="Moved"),))
    phases = ("Running", "Running", "Running")
    assert decide(wanted, stored(*phases), seen(*phases), trusted=True).stop == (REFS[1],)
    assert (wanted.why_stop("job-0", 1), wanted.why_stop("job-0", 0)) == ("Moved", None)


def test_where_tasks_cannot_be_stopped_apart_they_are_stopped_together() -> None:
    first, second = (TaskStop(job="job-0", index=index, reason="Moved") for index in (0, 1))
    phases = ("Running", "Running", "Succeeded")
    some, all_ = desired(stop=(first,)), desired(stop=(first, second))
    assert decide(some, stored(*phases), seen(*phases), trusted=True, stops_single_tasks=False).stop == ()
    assert decide(all_, stored(*phases), seen(*phases), trusted=True, stops_single_tasks=False).stop == REFS[:2]
    whole = desired(want="stop", reason="Evicted")
    assert decide(whole, stored(*phases), seen(*phases), trusted=True, stops_single_tasks=False).stop == REFS[:2]


def test_a_stop_before_the_start_starts_the_others_only() -> None:
    wanted = desired(stop=(TaskStop(job="job-0", index=0, reason="Cancelled"),))
    decision = decide(wanted, stored("Starting", "Starting", "Starting"), {}, trusted=True)
    assert decision.start == REFS[1:]
    assert (decision.tasks[0].phase, decision.tasks[0].reason) == ("Cancelled", "Cancelled")


@pytest.mark.parametrize("phase", sorted(ENDED))
def test_what_is_over_is_not_stopped_again(phase: str) -> None:
    wanted = desired(stop=(TaskStop(job="job-0", index=0, reason="Cancelled"),))
    phases = (phase, "Running", "Running")
    assert decide(wanted, stored(*phases), seen(*phases), trusted=True).stop == ()
