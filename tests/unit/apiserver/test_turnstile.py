"""Submits take turns by owner while the leader is behind; who would wait too long is told when to come again."""

from __future__ import annotations

import asyncio

from controlplane.apiserver.commands.pressure import BACKLOG_ORDERS
from controlplane.apiserver.commands.turnstile import Turnstile
from controlplane.model.errors import LimitExceeded
from controlplane.model.leadership import Cycle
from controlplane.store import keys
from tests.builders import an_order
from tests.clock import ManualClock
from tests.picture import Told

RATE = 70


def a_cycle(revision: int, n: int = 1, seconds: float = 0.0) -> Cycle:
    return Cycle(
        epoch=1, n=n, revision=revision, now="", seed=0, settings_digest="", engine="", considered=0, placed=0,
        seconds=seconds, hash="",
    )  # fmt: skip


class Stage:
    """A replica's turnstile, its ledgers and its time."""

    def __init__(self, patience_seconds: float = 5.0) -> None:
        self.told = Told()
        self.clock = ManualClock()
        self.turnstile = Turnstile(self.told.ledgers, self.clock, patience_seconds=patience_seconds)
        self.passed: list[str] = []

    async def press(self, orders: int = BACKLOG_ORDERS, decided_in: float = 0.0) -> None:
        """So many orders wait, and the leader's newest decision is a second old, after so long a time of deciding: RATE
        orders a second get in."""
        await self.turnstile.enter("", RATE * 10 // 7)
        before = self.told.history.revision
        waiting = [an_order().build() for _ in range(orders)]
        self.told.write({keys.order(order.id): order for order in waiting})
        self.clock.pass_seconds(1.1)
        self.told.write({keys.cycle(1, 1): a_cycle(before, seconds=decided_in)})

    async def submit(self, owner: str, orders: int = 1) -> None:
        await self.turnstile.enter(owner, orders)
        self.passed.append(owner)

    async def run(self, seconds: float) -> None:
        """Time passes in small steps, and whoever has something to do does it."""
        for _ in range(round(seconds * 100)):
            for _ in range(5):
                await asyncio.sleep(0)
            self.clock.pass_seconds(0.01)
        for _ in range(5):
            await asyncio.sleep(0)


async def test_everybody_passes_at_once_while_the_leader_keeps_up() -> None:
    stage = Stage()
    for number in range(3 * RATE):
        await stage.submit(f"owner-{number % 3}")
    assert len(stage.passed) == 3 * RATE


async def test_a_short_backlog_limits_nobody() -> None:
    stage = Stage()
    await stage.press(orders=10)
    for _ in range(3 * RATE):
        await stage.submit("ada")


async def test_a_decision_that_takes_long_is_no_late_decision() -> None:
    """As with very many tasks and targets, where nothing waits for the processor."""
    stage = Stage()
    await stage.press(decided_in=0.9)
    for _ in range(3 * RATE):
        await stage.submit("ada")
    assert len(stage.passed) == 3 * RATE


async def test_as_many_pass_as_the_rate_says_while_the_leader_is_behind() -> None:
    stage = Stage()
    await stage.press()
    waiting = [asyncio.create_task(stage.submit("ada")) for _ in range(3 * RATE)]
    await stage.run(0.9)
    assert 0.8 * RATE <= len(stage.passed) <= 1.2 * RATE
    for task in waiting:
        task.cancel()
    await asyncio.gather(*waiting, return_exceptions=True)


async def test_an_owner_who_floods_does_not_keep_others_waiting() -> None:
    stage = Stage()
    await stage.press()
    flood = [asyncio.create_task(stage.submit("eve")) for _ in range(10 * RATE)]
    await stage.run(0.1)
    before = len(stage.passed)
    ada = asyncio.create_task(stage.submit("ada"))
    await stage.run(0.1)
    assert ada.done()
    assert stage.passed.index("ada") <= before + 2
    for task in flood:
        task.cancel()
    await asyncio.gather(*flood, return_exceptions=True)


async def test_a_large_batch_shuts_nobody_out_for_long() -> None:
    stage = Stage()
    await stage.press()
    await stage.run(0.1)
    await asyncio.wait_for(asyncio.gather(stage.submit("eve", 1000), stage.run(0.1)), 10)
    ada = asyncio.create_task(stage.submit("ada"))
    await stage.run(1.2)
    assert "ada" in stage.passed
    await ada


async def test_who_would_wait_too_long_hears_when_to_come_again() -> None:
    stage = Stage(patience_seconds=0.01)
    await stage.press()
    asking = [asyncio.create_task(stage.submit("ada")) for _ in range(3 * RATE)]
    answers = await asyncio.gather(*asking, return_exceptions=True)
    refused = [answer for answer in answers if isinstance(answer, LimitExceeded)]
    assert len(refused) > RATE
    assert {refusal.retry_after_seconds for refusal in refused} == {2.0}


async def test_what_is_no_cycle_is_stepped_over() -> None:
    stage = Stage()
    stage.told.write({keys.cycle(1, 1): b"{", keys.cycle(1, 2): b'{"revision":"x"}'})
    await stage.submit("ada")
