"""All controllers of one term, each on its runner."""

from __future__ import annotations

import asyncio

from controlplane.aio.clock import Clock
from controlplane.aio.failpoint import NONE as NO_FAILPOINTS
from controlplane.aio.failpoint import Failpoints
from controlplane.cache.ledgers import Ledgers
from controlplane.controller_manager.clean_up import CleanUp
from controlplane.controller_manager.orders import Orders
from controlplane.controller_manager.recurring import Recurring
from controlplane.controller_manager.runner import Runner
from controlplane.controller_manager.targets import Targets
from controlplane.store.fenced import FencedWriter


async def run(ledgers: Ledgers, writer: FencedWriter, clock: Clock, failpoints: Failpoints = NO_FAILPOINTS) -> None:
    """Until cancelled, or until one of them finds this leader deposed."""
    async with asyncio.TaskGroup() as tasks:
        for controller in (
            Orders(ledgers, writer, clock),
            Targets(ledgers, writer, clock),
            CleanUp(ledgers, writer, clock, failpoints),
            Recurring(ledgers, writer, clock),
        ):
            tasks.create_task(Runner(controller, ledgers, clock).run())
