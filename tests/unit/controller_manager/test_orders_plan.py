"""What the orders controller writes for one order, as a pure plan."""

from __future__ import annotations

import msgspec
import pytest

from controlplane.controller_manager import folding, order_controller
from controlplane.model.errors import IllegalTransition
from controlplane.model.fulfilment import Ended, Fulfilment
from controlplane.model.order import Counts, OrderStatus
from controlplane.store import codec, keys, transaction
from controlplane.store.transaction import Item
from tests.builders import NOW, FulfilmentBuilder, OrderBuilder, a_fulfilment, an_order
from tests.picture import Told

EARLIER = "2025-12-31T23:00:00.000Z"


class Stage:
    def __init__(self, builder: OrderBuilder) -> None:
        self.told = Told()
        self.order = builder.build()
        self.told.write({keys.order(self.order.id): self.order})

    def placed(self, index: int, *, attempt: int = 1, holds: tuple[str, ...] = ()) -> FulfilmentBuilder:
        builder = a_fulfilment(self.order.id).task(index, attempt=attempt).holding(*holds)
        self.told.write({keys.desired("t1", builder.identity): builder.build()})
        return builder

    def retried(self, index: int, times: int, reason: str) -> None:
        """So many attempts ended before, and were tried again."""
        for attempt in range(1, times + 1):
            one = self.placed(index, attempt=attempt)
            ended = one.ended("retry", reason=reason)
            self.told.write({keys.desired("t1", one.identity): None, keys.ended(self.order.id, one.identity): ended})

    def reported(self, builder: FulfilmentBuilder, phase: str, *, reason: str = "") -> int:
        self.told.write({keys.observed("t1", builder.identity): builder.observed(phase, reason=reason)})
        return self.told.history.revision

    def plan(self, before: OrderStatus | None = None) -> list[Item]:
        return order_controller.plan(self.told.ledgers.orders[self.order.id], epoch=7, now=NOW, before=before)

    def final(self) -> OrderStatus | None:
        """The status that is written with the ends, if there is one."""
        key = keys.order_status(self.order.id)
        written = [value for item in self.plan() for name, value in writes(item)[0].items() if name == key]
        return codec.decode(written[0], OrderStatus) if written else None

    def happen(self, items: list[Item]) -> None:
        """Tells the ledgers what these writes do."""
        for item in items:
            puts, deletes = writes(item)
            self.told.write({**puts, **dict.fromkeys(deletes)})

    def fold(self, before: OrderStatus | None = None) -> OrderStatus | None:
        return folding.fold(self.told.ledgers.orders[self.order.id], epoch=7, now=NOW, before=before)


def writes(item: Item) -> tuple[dict[str, bytes], set[str]]:
    puts = {operation.key.decode(): operation.value for operation in item.then if operation.value is not None}
    deletes = {operation.key.decode() for operation in item.then if operation.writes and operation.value is None}
    return puts, deletes


def test_what_runs_needs_no_write() -> None:
    stage = Stage(an_order().of(2).jobs(cpu=1))
    stage.reported(stage.placed(0), "Running")
    assert stage.plan() == []


def test_a_reported_end_is_released_with_all_of_its_keys_in_one_item() -> None:
    stage = Stage(an_order().of(2).holding("x").jobs(cpu=1))
    one = stage.placed(0, holds=("x",))
    placed_at = stage.told.history.revision
    reported_at = stage.reported(one, "Failed", reason="ExitCode")
    (item,) = stage.plan()
    puts, deletes = writes(item)
    place, report = keys.desired("t1", one.identity), keys.observed("t1", one.identity)
    assert deletes == {place, report, keys.claim("x")}
    ended = codec.decode(puts[keys.ended(stage.order.id, one.identity)], Ended)
    assert (ended.epoch, ended.tasks[0].decision, ended.tasks[0].reason) == (7, "fail", "ExitCode")
    assert list(item.compares) == [transaction.mod_is(report, reported_at), transaction.mod_is(place, placed_at)]


@pytest.mark.parametrize(
    ("phase", "reason", "attempt", "decision"),
    [("Succeeded", "", 1, "done"), ("Failed", "Lost", 1, "retry"), ("Failed", "Lost", 6, "fail")],
)
def test_the_end_carries_the_decision(phase: str, reason: str, attempt: int, decision: str) -> None:
    stage = Stage(an_order().jobs(cpu=1))
    stage.retried(0, attempt - 1, "Lost")
    one = stage.placed(0, attempt=attempt)
    stage.reported(one, phase, reason=reason)
    (item,) = stage.plan()
    ended = codec.decode(writes(item)[0][keys.ended(stage.order.id, one.identity)], Ended)
    assert ended.tasks[0].decision == decision


@pytest.mark.parametrize(
    ("phase", "reported", "attempt", "decision", "reason"),
    [
        ("Cancelled", "Preempted", 1, "retry", "Preempted"),
        ("Cancelled", "", 5, "retry", "Preempted"),
        ("Cancelled", "Cancelled", 1, "retry", "Preempted"),
        ("Cancelled", "", 60, "retry", "Preempted"),
        ("Succeeded", "", 1, "done", ""),
        ("Failed", "ExitCode", 1, "fail", "ExitCode"),
    ],
)
def test_what_was_stopped_ends_for_the_reason_that_the_stop_gave(
    phase: str, reported: str, attempt: int, decision: str, reason: str
) -> None:
    stage = Stage(an_order().jobs(cpu=1))
    stage.retried(0, attempt - 1, "Preempted")
    one = stage.placed(0, attempt=attempt)
    wanted = msgspec.structs.replace(one.build(), want="stop", reason="Preempted")
    stage.told.write({keys.desired("t1", one.identity): wanted})
    stage.reported(one, phase, reason=reported)
    (item,) = stage.plan()
    (task,) = codec.decode(writes(item)[0][keys.ended(stage.order.id, one.identity)], Ended).tasks
    assert (task.decision, task.reason) == (decision, reason)


def test_a_preempted_task_of_an_order_that_its_user_cancels_is_cancelled() -> None:
    stage = Stage(an_order().jobs(cpu=1).cancelled())
    one = stage.placed(0)
    wanted = msgspec.structs.replace(one.build(), want="stop", reason="Preempted")
    stage.told.write({keys.desired("t1", one.identity): wanted})
    stage.reported(one, "Cancelled", reason="Preempted")
    (item,) = stage.plan()
    (task,) = codec.decode(writes(item)[0][keys.ended(stage.order.id, one.identity)], Ended).tasks
    assert (task.decision, task.phase) == ("cancel", "Cancelled")


def test_cancelling_asks_every_joblet_to_stop_once_and_keeps_the_placement() -> None:
    stage = Stage(an_order().of(2).jobs(cpu=1).cancelled())
    one = stage.placed(0)
    asked = stage.placed(1).stopping()
    stage.told.write({keys.desired("t1", asked.identity): asked.build()})
    (item,) = stage.plan()
    puts, deletes = writes(item)
    wanted = codec.decode(puts[keys.desired("t1", one.identity)], Fulfilment)
    assert (wanted.want, wanted.reason, wanted.tasks, wanted.epoch) == ("stop", "Cancelled", one.tasks, 7)
    assert deletes == set()


def test_a_task_whose_placement_vanished_ends_as_lost_and_is_tried_again() -> None:
    stage = Stage(an_order().jobs(cpu=1))
    stage.told.write({keys.desired("t1", stage.placed(0).identity): None})
    (item,) = stage.plan()
    ((key, value),) = writes(item)[0].items()
    ended = codec.decode(value, Ended)
    assert (ended.tasks[0].reason, ended.tasks[0].decision) == ("Lost", "retry")
    assert list(item.compares) == [transaction.absent(key)]


def test_the_last_end_and_the_final_status_are_one_write() -> None:
    stage = Stage(an_order().of(2).jobs(cpu=1))
    one, two = stage.placed(0), stage.placed(1)
    status = OrderStatus(order=stage.order.id, epoch=7, phase="Running", counts=Counts(placed=2), started=EARLIER)
    stage.told.write({keys.order_status(stage.order.id): status})
    told_at = stage.told.history.revision
    stage.reported(one, "Succeeded")
    stage.reported(two, "Failed", reason="ExitCode")
    (item,) = stage.plan(before=status)
    puts, deletes = writes(item)
    final = codec.decode(puts[keys.order_status(stage.order.id)], OrderStatus)
    assert (final.phase, final.counts) == ("Failed", Counts(succeeded=1, failed=1))
    assert (final.percent, final.started, final.finished, final.epoch) == (100, EARLIER, NOW, 7)
    assert transaction.mod_is(keys.order_status(stage.order.id), told_at) in item.compares
    assert transaction.mod_is(keys.order(stage.order.id), 2) in item.compares, "the order that it was decided on"
    assert len(item.compares) == 6
    assert {keys.ended(stage.order.id, one.identity), keys.ended(stage.order.id, two.identity)} <= puts.keys()
    assert len(deletes) == 4


@pytest.mark.parametrize("cancelled", [False, True])
@pytest.mark.parametrize("phase", ["Succeeded", "Failed", "Cancelled"])
def test_the_final_status_is_the_one_that_folding_the_ends_would_give(phase: str, cancelled: bool) -> None:
    builder = an_order().of(3).jobs(cpu=1)
    stage = Stage(builder.cancelled() if cancelled else builder)
    stage.reported(stage.placed(0), "Succeeded")
    if not cancelled:
        stage.happen(stage.plan())
        stage.reported(stage.placed(1), "Failed", reason="ExitCode")
        stage.happen(stage.plan())
        stage.reported(stage.placed(2), phase)
    final = stage.final()
    for item in stage.plan():
        puts, deletes = writes(item)
        puts.pop(keys.order_status(stage.order.id), None)
        stage.told.write({**puts, **dict.fromkeys(deletes)})
    assert final is not None
    assert final == stage.fold()


def test_an_order_of_which_something_is_left_is_not_finished_with_an_end() -> None:
    waiting = Stage(an_order().of(2).jobs(cpu=1))
    waiting.reported(waiting.placed(0), "Succeeded")
    running = Stage(an_order().of(2).jobs(cpu=1))
    running.reported(running.placed(0), "Succeeded")
    running.reported(running.placed(1), "Running")
    again = Stage(an_order().jobs(cpu=1))
    again.reported(again.placed(0), "Failed", reason="Lost")
    for stage in (waiting, running, again):
        assert len(stage.plan()) == 1
        assert stage.final() is None


def test_an_order_does_not_end_while_placements_of_it_are_under_way() -> None:
    stage = Stage(an_order().jobs(cpu=1))
    stage.reported(stage.placed(0), "Succeeded")
    ledger = stage.told.ledgers.orders[stage.order.id]
    (item,) = order_controller.plan(ledger, epoch=7, now=NOW, ends=False)
    assert keys.order_status(stage.order.id) not in writes(item)[0]
    assert stage.final() is not None


@pytest.mark.parametrize("tasks", [2, 6, 8])
def test_ends_that_are_too_large_together_are_written_one_by_one(tasks: int) -> None:
    stage = Stage(an_order().of(tasks).jobs(cpu=1))
    for index in range(tasks):
        one = stage.placed(index)
        seen = one.observed("Succeeded")
        urls = tuple(f"https://store/{at}/{'x' * 2000}" for at in range(100))
        seen = msgspec.structs.replace(seen, tasks=(msgspec.structs.replace(seen.tasks[0], artefacts=urls),))
        stage.told.write({keys.observed("t1", one.identity): seen})
    items = stage.plan()
    assert len(items) == tasks
    assert all(item.size() <= 256 << 10 for item in items)
    stage.happen(items)
    final = stage.fold()
    assert final is not None
    assert (final.phase, final.counts.succeeded) == ("Succeeded", tasks)


def test_an_order_with_many_ends_at_once_is_finished_after_them() -> None:
    stage = Stage(an_order().of(40).jobs(cpu=1))
    for index in range(40):
        stage.reported(stage.placed(index), "Succeeded")
    items = stage.plan()
    assert len(items) == 40
    assert stage.final() is None
    stage.happen(items)
    status = stage.fold()
    assert status is not None
    assert (status.phase, status.percent) == ("Succeeded", 100)


@pytest.mark.parametrize(("phase", "expected"), [("Running", False), ("Pending", True), ("Paused", True)])
def test_a_running_order_whose_counts_moved_can_wait(phase: str, expected: bool) -> None:
    stage = Stage(an_order().of(2).jobs(cpu=1))
    stage.reported(stage.placed(0), "Running")
    status = OrderStatus(order=stage.order.id, epoch=7, phase=phase, counts=Counts(placed=1, pending=1))
    stage.told.write({keys.order_status(stage.order.id): status})
    assert order_controller.urgent(stage.told.ledgers.orders[stage.order.id]) is expected


@pytest.mark.parametrize("event", ["ended", "cancelled", "vanished"])
def test_an_order_that_needs_a_write_is_urgent(event: str) -> None:
    stage = Stage(an_order().of(2).jobs(cpu=1))
    one = stage.placed(0)
    status = OrderStatus(order=stage.order.id, epoch=7, phase="Running", counts=Counts(placed=1, pending=1))
    stage.told.write({keys.order_status(stage.order.id): status})
    assert not order_controller.urgent(stage.told.ledgers.orders[stage.order.id])
    if event == "ended":
        stage.reported(one, "Succeeded")
    elif event == "cancelled":
        stage.told.write({keys.order(stage.order.id): msgspec.structs.replace(stage.order, cancel=True)})
    else:
        stage.told.write({keys.desired("t1", one.identity): None})
    assert order_controller.urgent(stage.told.ledgers.orders[stage.order.id])


def test_an_order_that_waits_needs_no_status() -> None:
    assert Stage(an_order().jobs(cpu=1)).fold() is None


def test_the_status_says_where_the_tasks_are_and_only_when_that_is_new() -> None:
    stage = Stage(an_order().of(2).jobs(cpu=1))
    stage.reported(stage.placed(0), "Running")
    status = stage.fold()
    assert status is not None
    assert (status.phase, status.counts, status.started) == ("Running", Counts(pending=1, running=1), NOW)
    assert stage.fold(before=status) is None


def test_a_final_status_keeps_the_start_and_has_an_end() -> None:
    stage = Stage(an_order().jobs(cpu=1))
    one = stage.placed(0)
    before = OrderStatus(order=stage.order.id, epoch=1, phase="Running", counts=Counts(placed=1), started=EARLIER)
    stage.told.write(
        {keys.desired("t1", one.identity): None, keys.ended(stage.order.id, one.identity): one.ended("done")}
    )
    status = stage.fold(before=before)
    assert status is not None
    assert (status.phase, status.started, status.finished, status.percent) == ("Succeeded", EARLIER, NOW, 100)


def test_a_cancelled_order_that_never_ran_is_cancelled_at_once() -> None:
    status = Stage(an_order().of(3).jobs(cpu=1).cancelled()).fold()
    assert status is not None
    assert (status.phase, status.counts) == ("Cancelled", Counts(cancelled=3))


def test_an_order_that_began_does_not_wait_for_its_beginning_again_when_its_placement_vanished() -> None:
    stage = Stage(an_order().of(2).jobs(cpu=1))
    counts = Counts(pending=1, placed=1)
    running = OrderStatus(order=stage.order.id, epoch=1, phase="Running", counts=counts, started=EARLIER)
    status = stage.fold(running)
    assert status is not None
    assert (status.phase, status.counts) == ("Running", Counts(pending=2))


def test_a_phase_that_may_not_follow_the_recorded_phase_is_not_written() -> None:
    stage = Stage(an_order().jobs(cpu=1))
    stage.reported(stage.placed(0), "Failed")
    stage.told.ledgers.orders[stage.order.id].phase = "Running"
    assert stage.final() is not None
    stage.told.ledgers.orders[stage.order.id].phase = "Succeeded"
    with pytest.raises(IllegalTransition):
        stage.plan()
