"""The runner of controllers: it lets others run, however many keys there are, and whatever one of them raises."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

import pytest

from controlplane.aio.clock import SystemClock
from controlplane.cache.ledgers import Ledgers, Touched
from controlplane.controller_manager.runner import WORKERS, Again, Runner
from controlplane.model.errors import Broken, Deposed
from controlplane.quarantine import Quarantine
from tests.clock import ManualClock
from tests.picture import Picture

KEYS = 20 * WORKERS


class Content:
    """A controller that is content with every key at once."""

    name = "content"
    kind = "Controller"

    def __init__(self) -> None:
        self.seen = 0
        self.all_seen = asyncio.Event()

    def every_key(self) -> Iterable[str]:
        return [str(number) for number in range(KEYS)]

    def keys_affected_by(self, touched: Touched) -> Iterable[str]:
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


class Slow(Content):
    """A controller that waits for something with every key."""

    async def reconcile(self, key: str) -> Again | None:
        self.seen += 1
        await asyncio.Event().wait()
        return None


@pytest.mark.parametrize("workers", [1, WORKERS, 3 * WORKERS])
async def test_as_many_keys_are_handled_at_a_time_as_there_are_workers(workers: int) -> None:
    controller = Slow()
    task = asyncio.create_task(Runner(controller, Ledgers(Picture()), SystemClock(), workers=workers).run())
    for _ in range(10):
        await asyncio.sleep(0)
    task.cancel()
    await asyncio.wait({task})
    assert controller.seen == workers


class Poisoned:
    """A controller of two keys, of which one raises whatever it is told to."""

    name = "orders"
    kind = "Order"

    def __init__(self, error: Exception) -> None:
        self.error = error
        self.bad = "bad"
        self.handled: asyncio.Queue[str] = asyncio.Queue()

    def every_key(self) -> Iterable[str]:
        return ["bad", "good"]

    def keys_affected_by(self, touched: Touched) -> Iterable[str]:
        if self.bad in touched.orders:
            raise self.error
        return touched.orders

    async def reconcile(self, key: str) -> Again | None:
        self.handled.put_nowait(key)
        if key == self.bad:
            raise self.error
        return None


ERRORS = (OverflowError("date value out of range"), Broken("rule"), UnicodeError("idna"), RecursionError(), OSError(28))


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
async def test_an_error_of_any_kind_concerns_its_key_only(error: Exception) -> None:
    controller, quarantine = Poisoned(error), Quarantine(SystemClock())
    runner = Runner(controller, Ledgers(Picture()), SystemClock(), quarantine)
    task = asyncio.create_task(runner.run())
    assert {await controller.handled.get(), await controller.handled.get()} == {"bad", "good"}
    runner.add("good")
    assert await controller.handled.get() == "good"
    assert [isolated.about.name for isolated in quarantine.isolated(10)] == ["bad"]
    assert not task.done()
    task.cancel()


async def test_a_key_that_failed_is_not_tried_again_at_once_although_it_changes() -> None:
    controller, clock = Poisoned(ValueError("no")), ManualClock()
    runner = Runner(controller, Ledgers(Picture()), clock, Quarantine(clock))
    task = asyncio.create_task(runner.run())
    assert {await controller.handled.get(), await controller.handled.get()} == {"bad", "good"}
    for _ in range(20):
        runner.add("bad")
        await asyncio.sleep(0)
    runner.add("good")
    assert await controller.handled.get() == "good"
    assert controller.handled.empty()
    task.cancel()


async def test_a_change_that_a_controller_cannot_be_asked_about_hides_no_other() -> None:
    controller, quarantine = Poisoned(ValueError("no")), Quarantine(SystemClock())
    runner = Runner(controller, Ledgers(Picture()), SystemClock(), quarantine)
    task = asyncio.create_task(runner.run())
    for _ in range(2):
        await controller.handled.get()
    runner._hear(Touched(orders={"bad", "other"}))
    assert await controller.handled.get() == "other"
    assert not task.done()
    isolated = {key.part for key in quarantine.isolated(10)}
    assert "orders: what a change concerns" in isolated
    controller.bad = "nobody"
    runner._hear(Touched(orders={"bad"}))
    assert "orders: what a change concerns" not in {key.part for key in quarantine.isolated(10)}
    task.cancel()


async def test_only_being_deposed_ends_a_runner() -> None:
    runner = Runner(Poisoned(Deposed("over")), Ledgers(Picture()), SystemClock())
    with pytest.raises(ExceptionGroup) as raised:
        await runner.run()
    assert raised.value.split(Deposed)[1] is None
