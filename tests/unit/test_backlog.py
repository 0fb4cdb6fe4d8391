"""The backlog equals what a look at all ledgers gives, whatever happened before."""

from __future__ import annotations

import itertools

from hypothesis import given, settings
from hypothesis import strategies as st

from controlplane.engine.backlog import Backlog
from controlplane.engine.rules.book import Book
from controlplane.engine.signature import Signature
from controlplane.store import keys
from tests.builders import A_MOMENT, OrderBuilder, a_fulfilment, an_order
from tests.picture import Told

NO_RULES = Book.of(())
Line = tuple[int, Signature, int, tuple[tuple[str, str, int], ...]]


def lines(backlog: Backlog) -> set[Line]:
    return {
        (
            queue.priority,
            queue.signature,
            queue.tasks,
            tuple((group.order, group.job, group.count) for group in queue.groups),
        )
        for queue in backlog.queues()
    }


def fresh(told: Told) -> Backlog:
    backlog = Backlog(told.ledgers)
    backlog.update(told.ledgers.orders, A_MOMENT, NO_RULES)
    return backlog


def test_jobs_with_one_signature_and_priority_share_a_queue_oldest_first() -> None:
    told = Told()
    orders = [an_order().of(2).jobs(cpu=1).build() for _ in range(3)]
    for order in reversed(orders):
        told.write({keys.order(order.id): order})
    (queue,) = fresh(told).queues()
    assert [group.order for group in queue.groups] == [order.id for order in orders]
    assert queue.tasks == 6


def test_the_policy_of_the_order_overrides_that_of_the_job() -> None:
    told = Told()
    order = an_order().with_job_policy("strict:a").jobs(cpu=1).strict("b").build()
    told.write({keys.order(order.id): order})
    (queue,) = fresh(told).queues()
    assert queue.signature.policy == "strict:b"


def test_paused_and_cancelled_orders_wait_for_nothing() -> None:
    told = Told()
    for builder in (an_order().paused(), an_order().cancelled()):
        order = builder.build()
        told.write({keys.order(order.id): order})
    assert fresh(told).queues() == []


@settings(max_examples=50, deadline=None)
@given(st.data())
def test_following_changes_leads_to_the_same_queues_as_looking_anew(data: st.DataObject) -> None:
    told = Told()
    backlog = Backlog(told.ledgers)
    told.ledgers.subscribe(lambda touched: touched_orders.update(touched.orders))
    touched_orders: set[str] = set()
    builders: dict[str, OrderBuilder] = {}
    indices = itertools.count()
    for _ in range(data.draw(st.integers(1, 20))):
        act = data.draw(st.sampled_from(["submit", "submit", "place", "prioritise", "pause", "delete"]))
        if act == "submit" or not builders:
            builder = an_order().of(data.draw(st.integers(1, 3))).jobs(cpu=data.draw(st.integers(1, 2)))
            builder = builder.of(2).jobs(cpu=1)
        else:
            builder = builders[data.draw(st.sampled_from(sorted(builders)))]
        builder = builder.with_priority(data.draw(st.integers(1, 2))) if act == "prioritise" else builder
        builder = builder.paused() if act == "pause" else builder
        builders[builder.identity] = builder
        if act == "place":
            placing = a_fulfilment(builder.identity).task(next(indices) % 3)
            told.write({keys.desired("t1", placing.identity): placing.build()})
        elif act == "delete":
            del builders[builder.identity]
            told.write({keys.order(builder.identity): None})
        else:
            told.write({keys.order(builder.identity): builder.build()})
        if data.draw(st.booleans()):
            backlog.update(touched_orders, A_MOMENT, NO_RULES)
            touched_orders.clear()
            assert lines(backlog) == lines(fresh(told))
