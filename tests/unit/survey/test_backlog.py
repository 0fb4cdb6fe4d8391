"""The backlog equals what a look at all ledgers gives, whatever happened before."""

from __future__ import annotations

import itertools
from datetime import timedelta

from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from controlplane.cache.ledger import OrderLedger
from controlplane.engine.rules.book import Book
from controlplane.engine.signature import Signature
from controlplane.model import times
from controlplane.model.isolation import Casualties
from controlplane.store import keys
from controlplane.survey.backlog import Backlog
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


def test_looking_again_at_an_order_that_waits_for_its_time_keeps_nothing_more() -> None:
    told = Told()
    order = an_order().not_before("2199-01-01T00:00:00.000Z").jobs(cpu=1).build()
    told.write({keys.order(order.id): order})
    backlog = fresh(told)
    for _ in range(5000):
        backlog.update([order.id], A_MOMENT, NO_RULES)
    assert len(backlog._moments) == len(backlog._due) == 1
    assert backlog.next_time() == "2199-01-01T00:00:00.000Z"


def test_of_times_that_change_again_and_again_only_the_last_is_kept_in_the_end() -> None:
    told = Told()
    order = an_order().jobs(cpu=1).build()
    backlog = Backlog(told.ledgers)
    for second in range(5000):
        moment = times.show(A_MOMENT + timedelta(seconds=3600 + second))
        told.write({keys.order(order.id): replace(order, not_before=moment)})
        backlog.update([order.id], A_MOMENT, NO_RULES)
    assert len(backlog._moments) < 1100
    assert backlog.next_time() == moment


def test_an_order_that_raises_is_reported_and_the_others_wait_on() -> None:
    told, ward = Told(), Casualties()
    orders = [an_order().of(2).jobs(cpu=1).build() for _ in range(3)]
    bad = replace(orders[1], created="x", deadline=100)
    for order in (orders[0], bad, orders[2]):
        told.write({keys.order(order.id): order})
    # Whatever checks stand before it: the ledger itself is made to hold it.
    ledger = told.ledgers.orders.get(bad.id) or OrderLedger.open(orders[1], 1, told.ledgers.resolved(orders[1]))
    ledger.order = bad
    told.ledgers.orders[bad.id] = ledger
    backlog = Backlog(told.ledgers, ward)
    backlog.update(told.ledgers.orders, A_MOMENT, NO_RULES)
    assert list(ward.errors) == [("Order", bad.id)]
    (queue,) = backlog.queues()
    assert [group.order for group in queue.groups] == [orders[0].id, orders[2].id]
    assert queue.tasks == 4
