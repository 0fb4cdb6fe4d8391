"""Whatever its tasks reported, and however much of it at once, an order ends and leaves nothing behind."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from controlplane.model.fulfilment import Ended
from controlplane.store import keys
from tests.builders import FulfilmentBuilder, a_fulfilment, an_order
from tests.component.leader_stage import Replica, following
from tests.component.leading_stage import leading
from tests.etcd import Etcd

URLS = tuple(f"https://store/{at}/{'x' * 2000}" for at in range(100))


async def reported(replica: Replica, builder: FulfilmentBuilder, urls: tuple[str, ...]) -> None:
    """A fulfilment that is placed, and whose tasks all ended with so many artefacts."""
    seen = builder.observed("Succeeded")
    tasks = tuple(replace(task, artefacts=urls) for task in seen.tasks)
    await replica.write({keys.desired("t1", builder.identity): builder.build()})
    await replica.write({keys.observed("t1", builder.identity): replace(seen, tasks=tasks)})


@pytest.mark.parametrize("tasks", [2, 6, 8, 40])
async def test_ends_that_came_while_nobody_led_are_taken_up_however_large_they_are_together(
    etcd: Etcd, tasks: int
) -> None:
    order = an_order().of(tasks).jobs(cpu=1)
    async with following(etcd.endpoint, Replica) as replica:
        await replica.join("t1", cpu=100)
        await replica.write({keys.order(order.identity): order.build()})
        for index in range(tasks):
            await reported(replica, a_fulfilment(order.identity).task(index), URLS)
    async with leading(etcd) as stage:
        await stage.is_in(order.identity, "Succeeded")
        status = stage.read(keys.ORDER_STATUS, order.identity)
        assert status is not None
        assert status.counts.succeeded == tasks
        assert stage.placed(order.identity) == []
        assert {task.artefacts for ended in stage.ended(order.identity) for task in ended.tasks} == {URLS}


async def test_one_end_that_is_too_large_for_its_record_is_recorded_shorter(etcd: Etcd) -> None:
    order = an_order().packed(10).of(10).jobs(cpu=1)
    together = a_fulfilment(order.identity)
    for index in range(10):
        together = together.task(index)
    async with following(etcd.endpoint, Replica) as replica:
        await replica.join("t1", cpu=100)
        await replica.write({keys.order(order.identity): order.build()})
        await reported(replica, together, URLS[:45])
    async with leading(etcd) as stage:
        await stage.is_in(order.identity, "Succeeded")
        ended: list[Ended] = stage.ended(order.identity)
        (record,) = ended
        assert all(0 < len(task.artefacts) < 45 for task in record.tasks)
        assert all("too large to be kept" in task.message for task in record.tasks)
        assert stage.placed(order.identity) == []
