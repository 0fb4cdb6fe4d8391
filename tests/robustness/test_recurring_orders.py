"""A recurring order of every second goes on while its leaders are killed: no second is left out, none comes twice."""

from __future__ import annotations

from datetime import timedelta
from functools import partial
from itertools import pairwise
from pathlib import Path

from controlplane.model import times
from controlplane.model.order import Order
from controlplane.store import codec, keys
from controlplane.wire.v1 import orders_pb2
from tests.fault_reports import Tell
from tests.robustness import promises
from tests.robustness.load import an_order, load
from tests.robustness.recovery import Fault
from tests.robustness.world import World, a_world

RUNS = 12


def runs_of(world: World, template: str) -> dict[str, str]:
    """Every run that was ever made, with its time."""
    made = [change.value for change in world.witness.changes if change.key.startswith(f"{keys.ROOT}config/orders/")]
    orders = [codec.decode(value.value, Order) for value in made if value is not None]
    return {order.id: order.scheduled or "" for order in orders if order.template == template}


def _more_than(world: World, template: str, count: int) -> bool:
    return len(runs_of(world, template)) > count


async def test_no_run_is_skipped_or_doubled_while_leaders_are_killed(tmp_path: Path, tell: Tell) -> None:
    async with a_world(tmp_path) as world, load(world.endpoints) as running:
        rates = await running.warm()
        order = an_order(world.client.mint.make())
        order.schedule.CopyFrom(orders_pb2.Schedule(cron="* * * * * *", limit=RUNS, missed="skip"))
        await world.client.orders.submit(order)
        for _ in range(2):
            before = len(runs_of(world, order.id))
            await world.witness.until(partial(_more_than, world, order.id, before + 2), "some more runs")
            fault, killed = Fault(world), world.leader
            killed.kill()
            tell(await fault.followed(rates=rates))
            killed.start()
        await promises.final(world, {order.id})
        assert world.witness.phases[order.id] == "Succeeded"
        runs = runs_of(world, order.id)
        moments = sorted(times.parse(moment, "scheduled") for moment in runs.values())
        assert len(moments) == RUNS
        assert all(later - earlier == timedelta(seconds=1) for earlier, later in pairwise(moments))
        promises.succeeded_once(world, set(runs))
        await promises.kept(world, running)
