"""Writes of controllers: seen in the cache when they return, and a Conflict when one was refused."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import pytest

from controlplane.cache.ledgers import Source
from controlplane.controller_manager.controller_writer import ControllerWriter
from controlplane.model.errors import Conflict
from controlplane.store.fenced import FencedWriter
from controlplane.store.transaction import Item, Outcome, absent, delete


class Etcd:
    """Refuses items with compares; the cache reaches what it is asked to reach."""

    epoch = 7

    def __init__(self) -> None:
        self.revision = self.reached_revision = 0
        self.items: list[Item] = []

    async def commit(self, items: Sequence[Item]) -> Sequence[Outcome]:
        self.revision += 1
        self.items += items
        return [Outcome(not item.compares, self.revision) for item in items]

    async def reached(self, revision: int, timeout: float | None = None) -> None:
        self.reached_revision = max(self.reached_revision, revision)


@pytest.fixture
def etcd() -> Etcd:
    return Etcd()


@pytest.fixture
def writer(etcd: Etcd) -> ControllerWriter:
    return ControllerWriter(FencedWriter(etcd), cast(Source, etcd))


GOOD, REFUSED = Item(then=(delete("a"),)), Item((absent("b"),), (delete("b"),))


async def test_a_write_returns_when_the_cache_shows_it(etcd: Etcd, writer: ControllerWriter) -> None:
    await writer.write([GOOD, GOOD])
    assert etcd.reached_revision == etcd.revision > 0
    assert writer.epoch == 7


async def test_nothing_to_write_asks_nobody(etcd: Etcd, writer: ControllerWriter) -> None:
    await writer.write([])
    assert etcd.revision == 0


async def test_a_refusal_is_a_conflict_after_the_others_were_written(etcd: Etcd, writer: ControllerWriter) -> None:
    with pytest.raises(Conflict):
        await writer.write([REFUSED, GOOD])
    assert etcd.items == [REFUSED, GOOD]
    assert etcd.reached_revision == etcd.revision


async def test_items_together_are_one_item(etcd: Etcd, writer: ControllerWriter) -> None:
    with pytest.raises(Conflict):
        await writer.write_together([REFUSED, GOOD])
    assert etcd.items == [Item(REFUSED.compares, (*REFUSED.then, *GOOD.then))]


async def test_an_offer_says_whether_it_was_taken(etcd: Etcd, writer: ControllerWriter) -> None:
    assert (await writer.offer(GOOD), await writer.offer(REFUSED)) == (True, False)
