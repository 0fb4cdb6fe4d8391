"""Values that nobody can read are counted and stepped over; what they touch heals when they do."""

from __future__ import annotations

import pytest

from controlplane.model.order import Counts, Order, OrderStatus
from controlplane.store import keys
from tests.builders import FulfilmentBuilder, a_fulfilment, an_order
from tests.picture import Content, Told

POISON = b"not JSON"


def status(order: Order, phase: str) -> OrderStatus:
    return OrderStatus(order=order.id, epoch=1, phase=phase, counts=Counts())


class Stage:
    """One order of three tasks, the first of them placed."""

    def __init__(self) -> None:
        self.told = Told()
        self.order = an_order().of(3).jobs(cpu=1).build()
        self.first: FulfilmentBuilder = a_fulfilment(self.order.id).task(0)
        self.place = keys.desired(self.first.target, self.first.identity)
        self.report = keys.observed(self.first.target, self.first.identity)
        self.write(keys.order(self.order.id), self.order)
        self.write(self.place, self.first.build())

    def write(self, key: str, content: Content) -> None:
        self.told.write({key: content})

    @property
    def used(self) -> dict[str, float]:
        return self.told.ledgers.target("t1").used

    @property
    def counts(self) -> Counts:
        return self.told.ledgers.orders[self.order.id].counts()


def test_poison_is_counted_by_its_key_and_forgotten_when_it_heals() -> None:
    stage = Stage()
    stage.write(keys.order(stage.order.id), POISON)
    assert stage.told.ledgers.poisoned == {f"config/orders/{stage.order.id}"}
    stage.write(keys.order(stage.order.id), stage.order)
    assert stage.told.ledgers.poisoned == set()


def test_the_rest_of_a_batch_goes_on_after_poison() -> None:
    told = Told()
    orders = [an_order().build() for _ in range(3)]
    told.write(
        {keys.order(orders[0].id): orders[0], keys.order(orders[1].id): POISON, keys.order(orders[2].id): orders[2]}
    )
    assert set(told.ledgers.orders) == {orders[0].id, orders[2].id}


def test_a_placement_that_was_poisoned_and_healed_takes_its_room_once() -> None:
    stage = Stage()
    stage.write(stage.place, POISON)
    assert stage.used == {"cpu": 1}
    stage.write(stage.place, stage.first.build())
    assert stage.used == {"cpu": 1}


def test_a_placement_that_was_poisoned_and_deleted_gives_back_its_room_and_its_task() -> None:
    stage = Stage()
    stage.write(stage.place, POISON)
    stage.told.write({stage.place: None, keys.ended(stage.order.id, stage.first.identity): stage.first.ended("done")})
    assert stage.used == {}
    assert stage.counts == Counts(pending=2, succeeded=1)


@pytest.mark.parametrize("place", [keys.desired("t2", "X"), keys.desired("t1", "X")])
def test_a_placement_under_another_key_than_its_own_counts_for_nothing(place: str) -> None:
    stage = Stage()
    stage.write(place, stage.first.build())
    assert len(stage.told.ledgers.poisoned) == 1
    assert stage.used == {"cpu": 1}
    stage.write(place, None)
    assert stage.used == {"cpu": 1}
    assert stage.counts == Counts(pending=2, placed=1)


def test_a_placement_with_an_amount_that_is_none_counts_for_nothing() -> None:
    stage = Stage()
    for amount in (-1, 10**400):
        stray = a_fulfilment(stage.order.id).task(1).requesting(cpu=amount)
        stage.write(keys.desired("t1", stray.identity), stray.build())
    assert len(stage.told.ledgers.poisoned) == 2
    assert stage.used == {"cpu": 1}


def test_an_order_under_another_key_than_its_own_is_not_scheduled() -> None:
    stage = Stage()
    stage.write(keys.order("01ARYZ6S41TSV4RRFFQ69G5FAV"), stage.order)
    assert set(stage.told.ledgers.orders) == {stage.order.id}


def test_an_order_that_becomes_readable_late_remembers_what_was_placed_and_ended() -> None:
    """Otherwise its attempts would be placed a second time."""
    stage = Stage()
    second = a_fulfilment(stage.order.id).task(1)
    stage.write(keys.ended(stage.order.id, second.identity), second.ended("retry"))
    stage.write(stage.report, stage.first.observed("Running"))
    stage.write(keys.order(stage.order.id), POISON)
    late = stage.told.rebuilt()
    assert late.orders == {}
    healed = stage.told.history.write({keys.order(stage.order.id): stage.order})
    late.cache.tell(healed)  # type: ignore[attr-defined]
    ledger = late.orders[stage.order.id]
    assert ledger.counts() == Counts(pending=2, running=1)
    assert ledger.jobs["job-0"].take(5, "") == [(1, 2), (2, 1)]


def test_a_poisoned_status_leaves_the_order_under_way_and_can_be_written_over() -> None:
    stage = Stage()
    stage.write(keys.order_status(stage.order.id), status(stage.order, "Running"))
    stage.write(keys.order_status(stage.order.id), POISON)
    for ledgers in (stage.told.ledgers, stage.told.rebuilt()):
        assert ledgers.orders[stage.order.id].status_revision == stage.told.history.revision


def test_a_report_that_was_deleted_by_hand_is_forgotten() -> None:
    stage = Stage()
    stage.write(stage.report, stage.first.observed("Succeeded"))
    stage.write(stage.report, None)
    live = stage.told.ledgers.orders[stage.order.id].live[stage.first.identity]
    assert (live.observed, live.observed_revision) == (None, 0)
    assert stage.told.ledgers.orders[stage.order.id].over == set()


def test_a_poisoned_report_is_no_report_but_its_revision_is_known() -> None:
    stage = Stage()
    stage.write(stage.report, stage.first.observed("Running", percent=50))
    stage.write(stage.report, POISON)
    for ledgers in (stage.told.ledgers, stage.told.rebuilt()):
        ledger = ledgers.orders[stage.order.id]
        live = ledger.live[stage.first.identity]
        assert (live.observed, live.observed_revision) == (None, stage.told.history.revision)
        assert (ledger.running, ledger.percents) == (0, 0)
        assert ledgers.poisoned == {f"inventory/t1/{stage.first.identity}"}
