"""From a fault to the next committed cycle: the time it took, against the bound of the table of faults."""

from __future__ import annotations

import asyncio
from functools import partial
from math import inf

from tests.robustness.load import Rates
from tests.robustness.patience import PATIENCE_SECONDS
from tests.robustness.world import World

# How much longer than its bound a test waits, to tell how late it was.
_LATE_SECONDS = PATIENCE_SECONDS


class Fault:
    """Made at the moment of the fault."""

    def __init__(self, world: World) -> None:
        self._witness = world.witness
        self.moment = asyncio.get_running_loop().time()
        self.epoch = world.witness.epoch
        self.leader = world.witness.leader

    def strikes(self) -> None:
        """What was prepared before happens only now."""
        self.moment = asyncio.get_running_loop().time()

    async def followed(self, *, within: float = inf, rates: Rates) -> str:
        """A leader of a higher epoch has committed a cycle within that time; what there is to tell about it."""
        return await self._cycle(self.epoch, within, rates)

    async def went_on(self, *, within: float = inf, rates: Rates) -> str:
        """A cycle was committed within that time, by whichever leader; at all, when the table states none."""
        return await self._cycle(self.epoch - 1, within, rates)

    async def lasts(self, seconds: float) -> None:
        """Returns that long after the fault began."""
        await asyncio.sleep(max(0.0, self.moment + seconds - asyncio.get_running_loop().time()))

    async def _cycle(self, above_epoch: int, within: float, rates: Rates) -> str:
        witness = self._witness
        await witness.until(
            lambda: witness.cycle_after(self.moment, above_epoch=above_epoch),
            f"a cycle of an epoch above {above_epoch}",
            seconds=_LATE_SECONDS if within == inf else within + _LATE_SECONDS,
        )
        cycle = witness.cycle_after(self.moment, above_epoch=above_epoch)
        assert cycle is not None
        took = cycle.moment - self.moment
        told = f"offered {rates.offered:.1f}/s, reached {rates.reached:.1f}/s, next cycle after {took:.3f} s"
        assert took <= within, f"{told}, which is above {within} s"
        return told if within == inf else f"{told} (bound {within:g} s)"


async def lead_with(world: World, names: set[str]) -> None:
    """Leaders step down until one of these leads and the others stand behind it."""
    while world.witness.leader not in names:
        epoch = world.witness.epoch
        await world.client.cluster.step_down()
        await world.witness.until(partial(_led_after, world, epoch), "the next one leads")
        await world.ready()


def _led_after(world: World, epoch: int) -> bool:
    return any(cycle.epoch > epoch for cycle in world.witness.cycles)
