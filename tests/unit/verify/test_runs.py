"""P1 and P2 of the runs that leaders make of recurring orders."""

from __future__ import annotations

from msgspec.structs import replace

from controlplane.model import schedule, times
from controlplane.model.order import Order
from controlplane.store import keys
from controlplane.verify.p1_fenced import FencedCheck
from controlplane.verify.p2_orders import OrdersCheck
from tests.unit.verify import past
from tests.unit.verify.past import NOW, ORDER, Past

RUN = schedule.run_identity(ORDER, times.parse(NOW, "now"))


def a_run(epoch: int, name: str = RUN) -> Order:
    return replace(past.order(name), template=ORDER, scheduled=NOW, epoch=epoch)


def test_a_run_carries_the_epoch_that_led_when_it_was_made() -> None:
    story = Past()
    epoch = story.elect(lease=1)
    story.commit({keys.order(RUN): a_run(epoch)})
    story.elect(lease=2)
    story.commit({keys.candidate(1): None})
    story.commit({keys.order(RUN): replace(a_run(epoch), cancel=True)})
    found = story.told_to(FencedCheck()).verdict()
    assert (found.ok, found.checked) == (True, 1), "what its user changes later is no leader's"


def test_a_run_of_a_deposed_leader_is_found() -> None:
    story = Past()
    old = story.elect(lease=1)
    story.elect(lease=2)
    story.commit({keys.candidate(1): None})
    story.commit({keys.order(RUN): a_run(old)})
    assert story.told_to(FencedCheck()).verdict().ok is False


def test_a_run_without_an_epoch_is_found() -> None:
    story = Past()
    story.elect()
    story.commit({keys.order(RUN): a_run(0)})
    assert story.told_to(FencedCheck()).verdict().ok is False


def test_a_run_with_another_identity_than_its_template_and_time_give_is_found() -> None:
    story = Past()
    epoch = story.elect()
    story.commit({keys.order(RUN): a_run(epoch)})
    assert story.told_to(OrdersCheck()).verdict().ok
    other = schedule.run_identity(RUN, times.parse(NOW, "now"))
    story.commit({keys.order(other): a_run(epoch, other)})
    (violation,) = story.told_to(OrdersCheck()).verdict().violations
    assert violation.key == keys.order(other)
