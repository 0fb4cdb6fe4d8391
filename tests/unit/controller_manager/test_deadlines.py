"""Which tasks are too late for their order's deadline, when to look again, and what is stopped then."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from controlplane.cache.ledger import OrderLedger
from controlplane.controller_manager import deadlines, folding, order_controller
from controlplane.controller_manager.deadlines import NEVER, Late
from controlplane.model.failure import ORDER_FAILED
from controlplane.model.fulfilment import Fulfilment
from controlplane.model.order import Counts, Move, Order, OrderStatus, TaskSelection
from controlplane.store import codec, keys
from tests.builders import NOW, FulfilmentBuilder, a_fulfilment
from tests.engine_stage import a_job, order_of
from tests.picture import Told

AT_30, AT_60 = "2026-01-01T00:00:30.000Z", "2026-01-01T00:01:00.000Z"
JUST_AFTER_30, JUST_AFTER_60 = "2026-01-01T00:00:30.001Z", "2026-01-01T00:01:00.001Z"


class Stage:
    """Two tasks of a job that may take 30 s, two of one without a limit; the deadline is after a minute."""

    def __init__(self, **said: Any) -> None:
        self.told = Told()
        jobs = ((2, a_job("short", time_limit=30)), (2, a_job("any")))
        self.order: Order = order_of(*jobs, **{"created": NOW, "deadline": 60, **said})
        self.told.write({keys.order(self.order.id): self.order})

    @property
    def ledger(self) -> OrderLedger:
        return self.told.ledgers.orders[self.order.id]

    def place(self, job: str, index: int) -> FulfilmentBuilder:
        one = a_fulfilment(self.order.id).task(index, job=job)
        self.told.write({keys.desired("t1", one.identity): one.build()})
        return one

    def look(self, now: str) -> Late:
        return deadlines.look(self.ledger, now)

    def wish(self, **said: Any) -> None:
        self.told.write({keys.order(self.order.id): msgspec.structs.replace(self.ledger.order, **said)})

    def stopped(self, *, late: bool = False) -> dict[str, str]:
        """Why each task is to stop."""
        items = order_controller.plan(self.ledger, epoch=7, now=NOW, late=late)
        found = [codec.decode(put.value or b"", Fulfilment) for item in items for put in item.then]
        return {f"{one.tasks[0].job}/{one.tasks[0].index}": one.reason for one in found if one.want == "stop"}


def test_what_waits_is_too_late_when_its_time_limit_goes_beyond_the_deadline() -> None:
    stage = Stage()
    assert stage.look(AT_30) == Late((), False, AT_30)
    assert stage.look(JUST_AFTER_30) == Late(("short",), False, AT_60)
    assert stage.look(JUST_AFTER_60) == Late(("short", "any"), True, None)


def test_what_runs_has_until_the_deadline() -> None:
    stage = Stage()
    for job in ("short", "any"):
        for index in (0, 1):
            stage.place(job, index)
    assert stage.look(NOW) == Late((), False, AT_60)
    assert stage.look(JUST_AFTER_60) == Late((), True, None)
    assert set(stage.stopped(late=True).values()) == {"DeadlineExceeded"}
    assert not stage.stopped()


@pytest.mark.parametrize("said", [{"deadline": None}, {"cancel": True}])
def test_there_is_no_deadline_to_watch(said: dict[str, Any]) -> None:
    assert Stage(**said).look(JUST_AFTER_60) == NEVER


def test_an_order_with_a_deadline_is_looked_at_before_anything_happens_to_it() -> None:
    assert not order_controller.untouched(Stage().ledger)
    assert order_controller.untouched(Stage(deadline=None).ledger)


def test_each_task_is_stopped_for_its_own_reason_and_once() -> None:
    stage = Stage()
    stage.place("short", 0)
    stage.place("short", 1)
    stage.place("any", 0)
    stage.wish(
        cancel_tasks=(TaskSelection(job="any"),),
        moves=(Move(job="short", index=1, attempt=1), Move(job="short", index=0, attempt=9)),
    )
    assert stage.stopped() == {"any/0": "Cancelled", "short/1": "Moved"}
    for live in list(stage.ledger.live.values()):
        told = msgspec.structs.replace(live.fulfilment, want="stop", reason="Moved")
        stage.told.write({keys.desired("t1", told.id): told})
    assert not stage.stopped()


def test_a_task_that_fails_the_order_stops_the_others() -> None:
    stage = Stage()
    stage.place("any", 0)
    bad = stage.place("short", 0)
    ended = {keys.ended(stage.order.id, bad.identity): bad.ended("fail_order"), keys.desired("t1", bad.identity): None}
    stage.told.write(ended)
    assert order_controller.urgent(stage.ledger)
    assert stage.stopped() == {"any/0": ORDER_FAILED}
    status = folding.fold(stage.ledger, epoch=7, now=NOW, before=None)
    assert status is not None
    assert (status.phase, status.counts) == ("Running", Counts(placed=1, failed=1, cancelled=2))


def test_a_change_of_an_order_is_answered_once() -> None:
    stage = Stage(deadline=None)
    assert folding.fold(stage.ledger, epoch=7, now=NOW, before=None) is None
    stage.wish(priority=7)
    assert order_controller.unanswered(stage.ledger)
    assert not order_controller.untouched(stage.ledger)
    status = folding.fold(stage.ledger, epoch=7, now=NOW, before=None)
    assert status is not None
    assert (status.phase, status.answered) == ("Pending", stage.told.history.revision)
    stage.told.write({keys.order_status(stage.order.id): status})
    assert not order_controller.unanswered(stage.ledger)
    assert folding.fold(stage.ledger, epoch=7, now=NOW, before=status) is None


@pytest.mark.parametrize(
    ("ends", "phase"),
    [({"done": 2}, "Succeeded"), ({"cancel": 2}, "Cancelled"), ({"done": 1, "fail": 1}, "Failed")],
)
def test_tasks_that_their_user_cancelled_do_not_fail_the_order(ends: dict[str, int], phase: str) -> None:
    stage = Stage()
    stage.wish(cancel_tasks=(TaskSelection(job="any"),))
    if "cancel" in ends:
        stage.wish(cancel_tasks=(TaskSelection(job="any"), TaskSelection(job="short")))
    decisions = [decision for decision, count in ends.items() for _ in range(count) if decision != "cancel"]
    for index, decision in enumerate(decisions):
        one = stage.place("short", index)
        ended = {keys.ended(stage.order.id, one.identity): one.ended(decision)}
        stage.told.write({**ended, keys.desired("t1", one.identity): None})
    status: OrderStatus | None = folding.fold(stage.ledger, epoch=7, now=NOW, before=None)
    assert status is not None
    assert status.phase == phase


def test_of_many_only_so_many_are_stopped_at_once() -> None:
    stage = Stage()
    jobs = ((order_controller.STOPS_AT_ONCE + 5, a_job("any")),)
    stage.order = order_of(*jobs, created=NOW, deadline=60)
    stage.told.write({keys.order(stage.order.id): stage.order})
    for index in range(order_controller.STOPS_AT_ONCE + 5):
        stage.place("any", index)
    assert len(stage.stopped(late=True)) == order_controller.STOPS_AT_ONCE
