"""The leader is killed right after users wished for things: the next one brings each of them to its end."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

from controlplane.client import Client
from controlplane.model import manifest
from controlplane.wire import convert
from controlplane.wire.v1 import orders_pb2
from tests.robustness.patience import PATIENCE_SECONDS
from tests.robustness.world import Plan, a_world

SLEEP = {"name": "j", "command": ["sleep", "600"], "requests": {"cpu": 1}}
ONCE = {"name": "j", "command": ["sh", "-c", '[ "$CONTROLPLANE_ATTEMPT" -ge 2 ]'], "requests": {"cpu": 1}}


async def submit(client: Client, job: dict[str, Any], count: int = 1, **said: Any) -> str:
    packet = {"jobs": [{"job": job, "count": count}]}
    read = manifest.read({"kind": "Order", "id": client.mint.make(), "packet": packet, **said})
    return (await client.orders.submit(convert.to_wire(read, orders_pb2.Order))).item.id


async def until(client: Client, order: str, holds: Callable[[orders_pb2.Order], bool]) -> orders_pb2.Order:
    async with asyncio.timeout(PATIENCE_SECONDS):
        while True:
            found: orders_pb2.Order = await client.orders.get(order)
            if holds(found):
                return found
            await asyncio.sleep(0.05)


async def test_every_wish_is_answered_by_the_next_leader(tmp_path: Path) -> None:
    async with a_world(tmp_path, Plan(replicas=2, processes=2, simulated=0)) as world:
        client = world.client
        cancelled, moved = await submit(client, SLEEP, 2), await submit(client, SLEEP)
        late = await submit(client, SLEEP, deadline="5s")
        held = await submit(client, {**ONCE, "failure_policies": [{"action": "hold"}]})
        for order, count in ((cancelled, 2), (moved, 1), (late, 1)):
            await until(client, order, lambda found, count=count: found.status.counts.running == count)  # type: ignore[misc]
        await until(client, held, lambda found: found.status.counts.held == 1)
        left = (await client.orders.get(moved)).tasks[0].target
        await client.orders.cancel_tasks(orders_pb2.TasksRequest(id=cancelled, job="j", index=1))
        await client.orders.move_task(orders_pb2.MoveTaskRequest(id=moved, job="j", index=0, attempt=1))
        await client.orders.release_tasks(orders_pb2.TasksRequest(id=held))
        world.leader.kill()

        done = await until(client, held, lambda found: found.status.phase == "Succeeded")
        assert [task.attempt for task in done.tasks] == [2]
        await until(client, cancelled, lambda found: [task.phase for task in found.tasks] == ["Running", "Cancelled"])
        there = await until(client, moved, lambda found: found.tasks[0].attempt == 2 and bool(found.tasks[0].target))
        assert there.tasks[0].target != left
        ended = await until(client, late, lambda found: found.status.phase == "Failed")
        assert [(task.phase, task.reason) for task in ended.tasks] == [("Failed", "DeadlineExceeded")]
