"""A leader that does not see its own placements yet, or that fails half-way, places no attempt a second time."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Any

import pytest

from controlplane.model.errors import Unavailable
from controlplane.scheduler.binder import Binder
from controlplane.store import keys
from controlplane.store.transaction import Item
from tests.builders import an_order
from tests.component.leading_stage import Stage, leading, places
from tests.etcd import Etcd

TASKS = 60
STALE_SECONDS = 2.5


class StalePicture:
    """Keeps back what the cache is told from the first placement on, for some time; who waits for more is sent away."""

    def __init__(self) -> None:
        self.stage: Stage | None = None
        self._kept: list[tuple[Any, ...]] = []
        self._shut = self._over = False

    async def __call__(self, items: Sequence[Item]) -> None:
        if self.stage is not None and not self._over and not self._shut and any(places(item) for item in items):
            self._shut = True
            cache = self.stage.cache
            self._apply, self._reached = cache._apply, cache.reached
            cache._apply = lambda *told: self._kept.append(told)  # type: ignore[method-assign]
            cache.reached = self._too_old  # type: ignore[method-assign]
            asyncio.get_running_loop().call_later(STALE_SECONDS, self._open, cache)

    async def _too_old(self, revision: int, timeout: float | None = None) -> None:
        raise Unavailable(f"the cache is too old for revision {revision}")

    def _open(self, cache: Any) -> None:
        self._over, self._shut = True, False
        cache._apply, cache.reached = self._apply, self._reached
        for told in self._kept:
            cache._apply(*told)


def attempts(stage: Stage, order: str) -> list[tuple[int, int]]:
    return sorted((task.index, task.attempt) for one in stage.placed(order) for task in one.tasks)


async def test_a_leader_whose_picture_is_stale_waits_for_its_own_placements(etcd: Etcd) -> None:
    picture = StalePicture()
    async with leading(etcd, picture) as stage:
        await stage.join("t1", cpu=1000)
        picture.stage = stage
        built = an_order().of(TASKS).jobs(cpu=1).build()
        order = built.id
        # The leader may place it before this test has heard that it was written.
        with suppress(Unavailable):
            await stage.write({keys.order(order): built})
        await stage.until(lambda: len(stage.placed(order)) >= TASKS)
        after = await stage.submit(an_order().jobs(cpu=1))
        await stage.is_placed(after)
        assert attempts(stage, order) == [(index, 1) for index in range(TASKS)]


async def test_a_cycle_that_breaks_half_way_knows_what_it_has_sent(etcd: Etcd, monkeypatch: pytest.MonkeyPatch) -> None:
    whole, broken = Binder.items, False

    def half(self: Binder, *said: Any) -> Iterator[Item]:
        nonlocal broken
        for item in whole(self, *said):
            yield item
            if not broken and places(item):
                broken = True
                raise RuntimeError("half-way")

    monkeypatch.setattr(Binder, "items", half)

    async def slowly(items: Sequence[Item]) -> None:
        if any(places(item) for item in items):
            await asyncio.sleep(1.0)

    async with leading(etcd, slowly) as stage:
        await stage.join("t1", cpu=1000)
        order = await stage.submit(an_order().of(TASKS).jobs(cpu=1))
        await stage.until(lambda: len(stage.placed(order)) >= TASKS)
        after = await stage.submit(an_order().jobs(cpu=1))
        await stage.is_placed(after)
        assert broken
        assert attempts(stage, order) == [(index, 1) for index in range(TASKS)]
