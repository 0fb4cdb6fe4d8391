"""All controllers of a term, each on a runner."""

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
from controlplane.controller_manager.controller_writer import ControllerWriter
from controlplane.controller_manager.hosting_controller import HostingController
from controlplane.controller_manager.made_targets import MadeController, Providing
from controlplane.controller_manager.order_controller import OrderController
from controlplane.controller_manager.recurring import Recurring
from controlplane.controller_manager.restoring import Restoring
from controlplane.controller_manager.runner import WORKERS, Controller, Runner
from controlplane.controller_manager.scaling import ScalingController
from controlplane.controller_manager.strays import Strays
from controlplane.controller_manager.target_controller import TargetController
from controlplane.controller_manager.token_clean_up import TokenCleanUp
from controlplane.controller_manager.unclaiming import Unclaiming
from controlplane.election.peer_presence import PeerPresence
from controlplane.quarantine import Quarantine
from controlplane.store.fenced import FencedWriter
from controlplane.store.kv import Store
from controlplane.store.space_watch import SpaceWatch

# An ending order keeps its room until the end is written. With a busy etcd a write takes a fifth of a second, so that
# the number of concurrent ends bounds the ends per second.
_ORDERS_AT_ONCE = 512


@dataclass(frozen=True, slots=True)
class Upkeep:
    """Needs of the controllers that look after etcd and the disk, beside the ledgers."""

    store: Store
    space: SpaceWatch
    archive: Archive | None


async def run(
    ledgers: Ledgers,
    fenced: FencedWriter,
    clock: Clock,
    *,
    upkeep: Upkeep | None = None,
    providing: Providing | None = None,
    presence: PeerPresence | None = None,
    failpoints: Failpoints = NO_FAILPOINTS,
    quarantine: Quarantine | None = None,
) -> None:
    """Until cancelled, or until a controller finds this leader deposed.

    Without upkeep, no order is archived and no history compacted; without providers, no target is scaled.
    """
    quarantine = quarantine or Quarantine(clock)
    writer = ControllerWriter(fenced, ledgers.cache)
    hosting = HostingController(ledgers, writer, presence)
    controllers: list[Controller] = [
        OrderController(ledgers, writer, clock),
        TargetController(ledgers, writer, clock),
        Restoring(ledgers, writer, clock),
        Strays(ledgers, writer, clock),
        Unclaiming(ledgers, writer, clock),
        CleanUp(ledgers, writer, clock, upkeep.archive if upkeep is not None else None, failpoints),
        Recurring(ledgers, writer, clock),
        TokenCleanUp(ledgers, writer, clock),
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
            workers = _ORDERS_AT_ONCE if controller.name == OrderController.name else WORKERS
            runner = Runner(controller, ledgers, clock, quarantine, workers=workers)
            tasks.create_task(runner.run())
            if controller is hosting:
                attend = partial(hosting.attend, runner.add)
                tasks.create_task(quarantine.supervise(hosting.name, "Controller", "attendance", attend))
