"""The tasks of an order as they are shown, where they agree with its counts."""

from __future__ import annotations

from collections import Counter

from msgspec.structs import replace

from controlplane.apiserver.queries.views import task_view
from controlplane.cache.placement_hint import ANYWHERE
from controlplane.controller_manager import folding
from controlplane.model import texts
from controlplane.model.order import Order, OrderStatus
from controlplane.store import keys
from tests.builders import NOW, OrderBuilder, a_fulfilment, an_order
from tests.picture import Told

CHAIN = an_order().of(2).jobs(cpu=1).after("job-0").jobs(cpu=1).after("job-1").of(3).jobs(cpu=1)
SHOWN = [("job-0", "Failed", "")] * 2 + [("job-1", "Cancelled", "DependencyFailed")] * 2
SHOWN += [("job-2", "Cancelled", "DependencyFailed")] * 3


def stored(told: Told, builder: OrderBuilder) -> Order:
    order = builder.build()
    told.write({keys.order(order.id): order})
    return order


def run(told: Told, order: Order, index: int, decision: str) -> None:
    """The task's first attempt is placed and over."""
    one = a_fulfilment(order.id).task(index)
    place = keys.desired("t1", one.identity)
    told.write({place: one.build()})
    told.write({keys.ended(order.id, one.identity): one.ended(decision), place: None})


async def shown(told: Told, order: Order) -> list[tuple[str, str, str]]:
    snapshot = told.picture.snapshot
    page = await task_view.page(
        told.ledgers, snapshot, order, start=0, limit=100, waits={("job-0", ANYWHERE): "Queued"}
    )
    return [(task.job, task.phase, task.reason or "") for task in page.tasks]


def folded(told: Told, order: Order) -> OrderStatus:
    status = folding.fold(told.ledgers.orders[order.id], epoch=7, now=NOW, before=None)
    assert status is not None
    return status


async def test_tasks_that_wait_for_a_failed_job_are_cancelled_and_say_so_before_the_order_ends() -> None:
    told = Told()
    order = stored(told, CHAIN)
    run(told, order, 0, "fail")
    found = await shown(told, order)
    assert found == [SHOWN[0], ("job-0", "Pending", "Queued"), *SHOWN[2:]]
    counts = folded(told, order).counts
    assert Counter(phase for _, phase, _ in found) == Counter(
        Pending=counts.pending, Failed=counts.failed, Cancelled=counts.cancelled
    )


async def test_an_order_whose_rest_can_never_run_ends_as_failed_and_shows_the_same_afterwards() -> None:
    told = Told()
    order = stored(told, CHAIN)
    run(told, order, 0, "fail")
    run(told, order, 1, "fail")
    status = folded(told, order)
    assert (status.phase, status.counts.failed, status.counts.cancelled) == ("Failed", 2, 5)
    told.write({keys.order_status(order.id): status})
    assert order.id not in told.ledgers.orders
    assert await shown(told, order) == SHOWN


async def test_what_a_user_cancelled_does_not_blame_a_dependency() -> None:
    told = Told()
    order = stored(told, CHAIN.cancelled())
    assert {(phase, reason) for _, phase, reason in await shown(told, order)} == {("Cancelled", "")}


async def test_a_task_that_was_to_be_tried_again_when_its_order_was_cancelled_is_cancelled() -> None:
    told = Told()
    order = stored(told, an_order().jobs(cpu=1).cancelled())
    run(told, order, 0, "retry")
    told.write({keys.order_status(order.id): folded(told, order)})
    assert order.id not in told.ledgers.orders
    assert [phase for _, phase, _ in await shown(told, order)] == ["Cancelled"]


async def messages(told: Told, order: Order) -> list[tuple[str, str, str]]:
    page = await task_view.page(told.ledgers, told.picture.snapshot, order, start=0, limit=100, waits={})
    return [(task.phase, task.reason or "", task.message or "") for task in page.tasks]


async def test_a_placed_task_says_why_it_does_not_start_and_forgets_it_when_it_runs() -> None:
    told = Told()
    order = stored(told, an_order().jobs(cpu=1))
    placed = a_fulfilment(order.id).task(0)
    told.write({keys.desired("t1", placed.identity): placed.build()})
    pulling = placed.observed("Starting", reason="ImageError", message="ErrImagePull: connection refused")
    told.write({keys.observed("t1", placed.identity): pulling})
    assert await messages(told, order) == [("Placed", "ImageError", "ErrImagePull: connection refused")]
    told.write({keys.observed("t1", placed.identity): placed.observed("Running", report=2)})
    assert await messages(told, order) == [("Running", "", "")]


async def test_a_failed_task_keeps_what_its_target_said() -> None:
    told = Told()
    order = stored(told, an_order().jobs(cpu=1))
    one = a_fulfilment(order.id).task(0)
    ended = one.ended("fail", reason="StartError")
    ended = replace(ended, tasks=(replace(ended.tasks[0], message="nope: No such file or directory"),))
    told.write({keys.ended(order.id, one.identity): ended})
    assert await messages(told, order) == [("Failed", "StartError", "nope: No such file or directory")]


async def test_a_page_shows_a_bounded_part_of_what_a_joblet_said() -> None:
    told = Told()
    order = stored(told, an_order().jobs(cpu=1))
    placed = a_fulfilment(order.id).task(0)
    told.write({keys.desired("t1", placed.identity): placed.build()})
    told.write({keys.observed("t1", placed.identity): placed.observed("Starting", message="x" * 4000)})
    [(_, _, message)] = await messages(told, order)
    assert len(message) == texts.SHOWN_CHARACTERS
