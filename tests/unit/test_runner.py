"""The runner of controllers: it lets others run, however many keys there are."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from controlplane.aio.clock import SystemClock
from controlplane.cache.ledgers import Ledgers, Touched
from controlplane.controller_manager.runner import WORKERS, Again, Runner
from tests.picture import Picture

KEYS = 20 * WORKERS


class Content:
    """A controller that is content with every key at once."""

    name = "content"

    def __init__(self) -> None:
        self.seen = 0
        self.all_seen = asyncio.Event()

    def every_key(self) -> Iterable[str]:
        return [str(number) for number in range(KEYS)]

    def concerned(self, touched: Touched) -> Iterable[str]:
        return ()

    async def reconcile(self, key: str) -> Again | None:
        self.seen += 1
        if self.seen == KEYS:
            self.all_seen.set()
        return None


async def test_a_round_over_many_keys_that_need_nothing_lets_others_run_in_between() -> None:
    controller = Content()
    task = asyncio.create_task(Runner(controller, Ledgers(Picture()), SystemClock()).run())
    most = before = 0
    while not controller.all_seen.is_set():
        await asyncio.sleep(0)
        most, before = max(most, controller.seen - before), controller.seen
    task.cancel()
    await asyncio.wait({task})
    assert most <= WORKERS
