"""Recurring orders through the API: admitted or refused by field, shown, explained and planned as what they are."""

from __future__ import annotations

from typing import Any

import pytest

from controlplane.cli import tables
from controlplane.model import errors
from controlplane.model.order import Counts, OrderStatus
from controlplane.store import codec, keys
from controlplane.store.transaction import Item, put
from controlplane.wire import json_shapes
from controlplane.wire.v1 import common_pb2, orders_pb2
from tests.component.api_stage import Api, an_order, refusal


def a_template(**said: Any) -> orders_pb2.Order:
    order = an_order(count=3)
    order.schedule.CopyFrom(orders_pb2.Schedule(**{"cron": "0 3 * * *", "tz": "Europe/Berlin", **said}))
    return order


def row(order: orders_pb2.Order) -> dict[str, str]:
    plain = json_shapes.plain("Order", order)
    return {column.title: column.value(plain) for column in tables.ORDERS}


async def test_a_recurring_order_is_stored_and_has_no_tasks_of_its_own(api: Api) -> None:
    answer = await api.orders.Submit(a_template(limit=5, until="2090-01-01T00:00:00+01:00"))
    assert list(answer.warnings) == []
    order = await api.orders.Get(common_pb2.GetRequest(name=answer.item.id, min_revision=answer.revision))
    assert (order.schedule.cron, order.schedule.tz, order.schedule.limit) == ("0 3 * * *", "Europe/Berlin", 5)
    assert (order.schedule.missed, order.schedule.overlap) == ("last", "allow")
    assert order.schedule.until == "2089-12-31T23:00:00.000Z"
    assert (order.status.phase, order.status.counts.pending, len(order.tasks)) == ("Pending", 0, 0)


async def test_a_repeated_submit_of_it_is_one_order(api: Api) -> None:
    first = await api.orders.Submit(a_template())
    again = a_template()
    again.id = first.item.id
    assert (await api.orders.Submit(again)).repeated
    again.schedule.tz = "UTC"
    assert isinstance(await refusal(api.orders.Submit(again)), errors.AlreadyExists)


@pytest.mark.parametrize(
    ("said", "field"),
    [
        ({"cron": "every day"}, "schedule.cron"),
        ({"cron": "* * * * * *"}, "schedule.cron"),
        ({"cron": "*/9 * * * * *", "limit": 101}, "schedule.cron"),
        ({"cron": "0 0 30 2 *"}, "schedule.cron"),
        ({"cron": "0 0 */29 2 MON#3"}, "schedule.cron"),
        ({"tz": "Nowhere"}, "schedule.tz"),
        ({"missed": "some"}, "schedule.missed"),
        ({"overlap": "queue"}, "schedule.overlap"),
        ({"limit": 0}, "schedule.limit"),
        ({"until": "2020-01-01T00:00:00Z"}, "schedule.until"),
    ],
)
async def test_a_bad_schedule_is_refused_with_the_fields_name_and_nothing_is_stored(
    api: Api, said: dict[str, Any], field: str
) -> None:
    refused = await refusal(api.orders.Submit(a_template(**said)))
    assert isinstance(refused, errors.Invalid)
    assert refused.field == field
    assert api.cache.snapshot.count(keys.ORDERS) == 0


@pytest.mark.parametrize("name", ["template", "scheduled"])
async def test_nobody_submits_a_run(api: Api, name: str) -> None:
    order = an_order()
    setattr(order, name, "2026-01-01T00:00:00.000Z")
    refused = await refusal(api.orders.Submit(order))
    assert isinstance(refused, errors.Invalid)
    assert refused.field == name


async def test_it_is_explained_and_planned_as_what_it_is(api: Api) -> None:
    answer = await api.orders.Submit(a_template())
    found = await api.orders.Explain(orders_pb2.ExplainRequest(id=answer.item.id, min_revision=answer.revision))
    assert "recurs (0 3 * * *, Europe/Berlin)" in found.conclusion
    assert len(found.groups) == 0
    planned = await api.orders.Plan(orders_pb2.PlanRequest(order=a_template()))
    assert not planned.placeable, "there are no targets"
    assert len(planned.groups) == 1


async def test_tables_show_schedule_runs_and_the_next_time(api: Api) -> None:
    answer = await api.orders.Submit(a_template())
    name = answer.item.id
    status = OrderStatus(order=name, epoch=1, phase="Running", counts=Counts(), runs=7, next="2090-01-01T02:00:00.000Z")
    done = await api.store.commit(Item(then=(put(keys.order_status(name), codec.encode(status)),)))
    order = await api.orders.Get(common_pb2.GetRequest(name=name, min_revision=done.revision))
    shown = row(order)
    assert (shown["PHASE"], shown["DONE"]) == ("Running", "7 runs")
    assert (shown["SCHEDULE"], shown["NEXT"]) == ("0 3 * * * Europe/Berlin", "2090-01-01T02:00:00.000Z")
