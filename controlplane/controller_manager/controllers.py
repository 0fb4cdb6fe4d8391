"""All controllers of one term, each on its runner."""

from __future__ import annotations

import asyncio

from controlplane.aio.clock import Clock
from controlplane.cache.ledgers import Ledgers
from controlplane.controller_manager.clean_up import CleanUp
from controlplane.controller_manager.orders import Orders
from controlplane.controller_manager.runner import Controller, Runner
from controlplane.controller_manager.scaling import ScalingController
from controlplane.controller_manager.scaling_made import MadeController, Providing
from controlplane.controller_manager.targets import Targets
from controlplane.store.fenced import FencedWriter


async def run(ledgers: Ledgers, writer: FencedWriter, clock: Clock, providing: Providing | None = None) -> None:
    """Until cancelled, or until one of them finds this leader deposed. Who provides nothing does not scale."""
    controllers: list[Controller] = [
        Orders(ledgers, writer, clock),
        Targets(ledgers, writer, clock),
        CleanUp(ledgers, writer, clock),
    ]
    if providing is not None:
        controllers += [
            ScalingController(ledgers, writer, clock, providing.make_identity),
            MadeController(ledgers, writer, clock, providing),
        ]
    async with asyncio.TaskGroup() as tasks:
        for controller in controllers:
            tasks.create_task(Runner(controller, ledgers, clock).run())
