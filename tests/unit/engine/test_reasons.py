"""Every pending task of an order has exactly one reason."""

from __future__ import annotations

from controlplane.engine import reasons
from controlplane.engine.room import Room
from controlplane.model.order import Reason
from controlplane.model.target import TargetStatus
from controlplane.store import keys
from controlplane.survey.world_builder import WorldBuilder
from tests.builders import A_MOMENT, NOW, OrderBuilder, a_fulfilment, a_session, a_target, an_order
from tests.picture import Told

LATER = "2026-01-01T00:01:00.000Z"


def why(told: Told, builder: OrderBuilder) -> dict[str, int]:
    order = builder.build()
    told.write({keys.order(order.id): order})
    return told_reasons(told, order.id)


def told_reasons(told: Told, order: str) -> dict[str, int]:
    ledger = told.ledgers.orders[order]
    found = reasons.of_order(Room(WorldBuilder(told.ledgers).build(A_MOMENT)), ledger, NOW)
    assert all(isinstance(reason, Reason) for reason in found)
    return {reason.reason: reason.count for reason in found}


def with_target(name: str = "t1", *, slots: int | None = None, cpu: float = 2) -> Told:
    told = Told()
    told.write(
        {
            keys.config("targets", name): a_target(name, slots=slots, cpu=cpu),
            keys.target_status(name): TargetStatus(target=name, epoch=1, phase="Ready"),
            keys.live(name): a_session(name, cpu=cpu),
        }
    )
    return told


def test_each_job_of_an_order_has_its_own_reason() -> None:
    order = an_order().of(2).jobs(cpu=1).of(3).jobs(cpu=9).of(4).with_drivers("kubernetes").jobs(cpu=1)
    assert why(with_target(), order) == {"Queued": 2, "InsufficientCapacity": 3, "DriverUnsupported": 4}


def test_a_paused_order_waits_because_it_is_paused() -> None:
    assert why(with_target(), an_order().of(3).jobs(cpu=9).paused()) == {"Paused": 3}


def test_a_cancelled_order_waits_for_nothing() -> None:
    assert why(with_target(), an_order().of(3).jobs(cpu=1).cancelled()) == {}


def test_a_held_resource_is_the_reason() -> None:
    told = with_target()
    holder = a_fulfilment("01ARYZ6S41TSV4RRFFQ69G5FAV").holding("licence")
    told.write({keys.claim("licence"): holder.claims()[0]})
    assert why(told, an_order().of(2).holding("licence").jobs(cpu=1)) == {"ResourceHeld": 2}


def test_what_backs_off_is_told_apart_from_what_waits_for_room() -> None:
    told = with_target()
    order = an_order().of(3).jobs(cpu=9).build()
    first = a_fulfilment(order.id).task(0)
    told.write({keys.order(order.id): order})
    told.write({keys.ended(order.id, first.identity): first.ended("retry", not_before=LATER)})
    assert told_reasons(told, order.id) == {"BackingOff": 1, "InsufficientCapacity": 2}


def test_a_target_that_is_full_is_the_reason() -> None:
    told = with_target(slots=1, cpu=100)
    other = an_order().build()
    told.write({keys.order(other.id): other})
    one = a_fulfilment(other.id).task(0)
    told.write({keys.desired("t1", one.identity): one.build()})
    assert why(told, an_order().jobs(cpu=1)) == {"TargetFull": 1}


def test_a_target_without_a_session_is_not_ready() -> None:
    told = with_target()
    told.write({keys.live("t1"): None})
    assert why(told, an_order().jobs(cpu=1)) == {"TargetNotReady": 1}


def test_without_targets_there_is_a_reason_too() -> None:
    assert why(Told(), an_order().jobs(cpu=1)) == {"NoTargets": 1}
