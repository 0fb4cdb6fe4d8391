"""All controllers of one term, each on its runner."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from functools import partial

from controlplane.aio.clock import Clock
from controlplane.aio.failpoint import NONE as NO_FAILPOINTS
from controlplane.aio.failpoint import Failpoints
from controlplane.cache.ledgers import Ledgers
from controlplane.controller_manager.archive import Archive
from controlplane.controller_manager.clean_up import CleanUp
from controlplane.controller_manager.compaction import Compaction
from controlplane.controller_manager.hosting import HostingController
from controlplane.controller_manager.orders import Orders
from controlplane.controller_manager.recurring import Recurring
from controlplane.controller_manager.restoring import Restoring
from controlplane.controller_manager.runner import WORKERS, Controller, Runner
from controlplane.controller_manager.scaling import ScalingController
from controlplane.controller_manager.scaling_made import MadeController, Providing
from controlplane.controller_manager.strays import Strays
from controlplane.controller_manager.targets import Targets
from controlplane.controller_manager.unclaiming import Unclaiming
from controlplane.election.attendance import Attendance
from controlplane.quarantine import Quarantine
from controlplane.store.fenced import FencedWriter
from controlplane.store.kv import Store
from controlplane.store.space import SpaceWatch

# An order that ends holds room of its target until that is written. With a busy etcd a write takes a fifth of a second:
# the number of orders that end at a time bounds how many end in a second.
_ORDERS_AT_ONCE = 512


@dataclass(frozen=True, slots=True)
class Upkeep:
    """What those need beside the ledgers that look after etcd and the disk."""

    store: Store
    space: SpaceWatch
    archive: Archive | None


async def run(
    ledgers: Ledgers,
    writer: FencedWriter,
    clock: Clock,
    *,
    upkeep: Upkeep | None = None,
    providing: Providing | None = None,
    attendance: Attendance | None = None,
    failpoints: Failpoints = NO_FAILPOINTS,
    quarantine: Quarantine | None = None,
) -> None:
    """Until cancelled, or until one finds this leader deposed.

    Without upkeep nothing is archived or compacted; who provides nothing does not scale.
    """
    quarantine = quarantine or Quarantine(clock)
    hosting = HostingController(ledgers, writer, attendance)
    controllers: list[Controller] = [
        Orders(ledgers, writer, clock),
        Targets(ledgers, writer, clock),
        Restoring(ledgers, writer, clock),
        Strays(ledgers, writer, clock),
        Unclaiming(ledgers, writer, clock),
        CleanUp(ledgers, writer, clock, upkeep.archive if upkeep is not None else None, failpoints),
        Recurring(ledgers, writer, clock),
        hosting,
    ]
    if upkeep is not None:
        controllers.append(Compaction(ledgers, upkeep.store, upkeep.space, clock))
    if providing is not None:
        controllers += [
            ScalingController(ledgers, writer, clock, providing.make_identity),
            MadeController(ledgers, writer, clock, providing),
        ]
    async with asyncio.TaskGroup() as tasks:
        for controller in controllers:
            workers = _ORDERS_AT_ONCE if controller.name == Orders.name else WORKERS
            runner = Runner(controller, ledgers, clock, quarantine, workers=workers)
            tasks.create_task(runner.run())
            if controller is hosting:
                attend = partial(hosting.attend, runner.add)
                tasks.create_task(quarantine.supervise(hosting.name, "Controller", "attendance", attend))
