"""What counts as demand of a policy, and for how long it has waited."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from controlplane.cache.target_ledger import NeighbourKind
from controlplane.controller_manager.scaling_demand import Demand, EligibleWork
from controlplane.engine.signature import Signature
from controlplane.model.job import Constraint
from controlplane.model.scalepolicy import ScalePolicy, TargetSize, TargetTemplate, WorkSelector
from controlplane.store import keys
from tests.builders import OrderBuilder, a_fulfilment, a_signature, an_order
from tests.picture import Told

NOW = datetime(2026, 1, 1, 0, 0, 1, tzinfo=UTC)
TEMPLATE = TargetTemplate(driver="process", region="eu", labels={"disk": "ssd"}, capacity={"cpu": 2})


def a_taker(serves: WorkSelector | None = None, **more: Any) -> EligibleWork:
    return EligibleWork(ScalePolicy(name="farm", serves=serves, template=TEMPLATE, **more))


def of(**more: Any) -> Signature:
    return a_signature(cpu=1, more=more)


@pytest.mark.parametrize(
    ("signature", "takes"),
    [
        (of(), True),
        (a_signature(cpu=2), True),
        (a_signature(cpu=3), False),
        (a_signature(cpu=1, gpu=1), False),
        (a_signature(cpu=1, policy="strict:eu-1"), False),
        (a_signature(cpu=1, drivers=("kubernetes",)), False),
        (a_signature(cpu=1, drivers=("kubernetes", "process")), True),
        (of(region="eu"), True),
        (of(region="us"), False),
        (of(hard=(Constraint(label="disk", op="In", values=("ssd",)),)), True),
        (of(hard=(Constraint(label="disk", op="In", values=("hdd",)),)), False),
    ],
)
def test_only_what_a_new_target_would_take_counts(signature: Signature, takes: bool) -> None:
    assert a_taker().takes(signature) == takes


def test_the_largest_size_counts() -> None:
    sizes = (TargetSize(capacity={"cpu": 2}), TargetSize(capacity={"cpu": 4}))
    assert a_taker(sizes=sizes).takes(a_signature(cpu=4))
    assert not a_taker(sizes=sizes).takes(a_signature(cpu=5))


class Stage:
    def __init__(self) -> None:
        self.told = Told()
        self.demand = Demand(self.told.ledgers)

    def tell(self, builder: OrderBuilder) -> None:
        self.told.write({keys.order(builder.identity): builder.build()})
        self.demand.touch([builder.identity])

    def look(self, at: float = 0.0, wall: datetime = NOW) -> tuple[int, float]:
        self.demand.look(wall, at)
        return self.demand.waiting(a_taker()), self.demand.waited_seconds(a_taker(), at)


def test_all_that_may_be_placed_waits_and_what_is_placed_does_not() -> None:
    stage = Stage()
    order = an_order().of(3).jobs(cpu=1)
    stage.tell(order)
    stage.tell(an_order().of(5).jobs(cpu=9))
    assert stage.look() == (3, 0.0)
    placed = a_fulfilment(order.identity).task(0)
    stage.told.write({keys.desired("t1", placed.identity): placed.build()})
    assert stage.look() == (3, 0.0), "nobody said that it was touched"
    stage.demand.touch([order.identity])
    assert stage.look() == (2, 0.0)
    stage.tell(order.cancelled())
    assert stage.look() == (0, 0.0)


def test_the_wait_counts_from_when_an_order_was_seen_to_the_last_of_its_tasks() -> None:
    stage = Stage()
    first, second = an_order().jobs(cpu=1), an_order().jobs(cpu=1)
    stage.tell(first)
    stage.look(at=10)
    stage.tell(second)
    assert stage.look(at=13) == (2, 3)
    stage.tell(first.cancelled())
    assert stage.look(at=20) == (1, 7)


def test_an_order_whose_time_has_not_come_does_not_wait() -> None:
    stage = Stage()
    stage.tell(an_order().not_before("2026-01-01T00:00:05.000Z").jobs(cpu=1))
    assert stage.look(at=10) == (0, 0.0)
    assert stage.demand.next_time() == "2026-01-01T00:00:05.000Z"
    assert stage.look(at=14, wall=NOW.replace(second=5)) == (1, 0.0)
    assert stage.look(at=15, wall=NOW.replace(second=6)) == (1, 1.0)


@pytest.mark.parametrize(
    ("serves", "takes"),
    [
        (WorkSelector(), True),
        (WorkSelector(class_="render"), True),
        (WorkSelector(class_="video"), False),
        (WorkSelector(labels={"team": "film"}), True),
        (WorkSelector(labels={"team": "film", "show": "x"}), False),
        (WorkSelector(region="eu"), True),
        (WorkSelector(region="us"), False),
    ],
)
def test_a_policy_serves_the_work_that_it_names(serves: WorkSelector, takes: bool) -> None:
    signature = of(kind=NeighbourKind((("age", "2"), ("team", "film")), "render"), region="eu")
    assert a_taker(serves).takes(signature) == takes
