"""The totals of some owners: counted from their orders, with and without status."""

from __future__ import annotations

from controlplane.apiserver.queries.owner_totals import count_orders
from controlplane.model.order import Counts, OrderStatus
from controlplane.store import keys
from tests.builders import an_order
from tests.picture import History, Picture


def test_ends_waiting_and_running_work_of_the_named_orders_is_counted() -> None:
    done, failed, running, fresh, foreign = (an_order().of(4).build() for _ in range(5))
    statuses = {
        done.id: OrderStatus(order=done.id, epoch=1, phase="Succeeded", counts=Counts(succeeded=4)),
        failed.id: OrderStatus(order=failed.id, epoch=1, phase="Failed", counts=Counts(succeeded=1, failed=3)),
        running.id: OrderStatus(
            order=running.id, epoch=1, phase="Running", counts=Counts(pending=1, running=2, succeeded=1)
        ),
        foreign.id: OrderStatus(order=foreign.id, epoch=1, phase="Failed", counts=Counts(failed=4)),
    }
    picture, history = Picture(), History()
    picture.tell(history.write({keys.order(order.id): order for order in (done, failed, running, fresh, foreign)}))
    picture.tell(history.write({keys.order_status(order): status for order, status in statuses.items()}))
    totals = count_orders(picture.snapshot, [done.id, failed.id, running.id, fresh.id, "01GONE"])
    assert (totals.orders.total, totals.orders.succeeded, totals.orders.failed) == (2, 1, 1)
    assert (totals.tasks.total, totals.tasks.succeeded, totals.tasks.failed) == (9, 6, 3)
    assert (totals.closed.total, totals.open_orders) == (8, 2)
    assert (totals.queued, totals.running, totals.held) == (1 + fresh.tasks_total, 2, 0)
