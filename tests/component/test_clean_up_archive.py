"""Clean-up with an archive: on disk first, then gone from etcd; never the other way round, whenever its leader dies."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any

from controlplane.controller_manager.archive import Archive
from controlplane.controller_manager.clean_up import CleanUp
from controlplane.model.errors import Deposed
from controlplane.model.order import Counts, OrderStatus
from controlplane.model.settings import Settings
from controlplane.store import keys
from controlplane.store.fenced import FencedWriter
from tests.builders import NOW, a_fulfilment, an_order
from tests.clock import ManualClock
from tests.component.leader_stage import Mortal, Replica, following, lead
from tests.etcd import Etcd

ORDERS = [an_order() for _ in range(2)]
ENDS = 60


async def finished_orders(replica: Replica) -> None:
    """The first has more ended attempts than one transaction deletes."""
    await replica.write({keys.SETTINGS: Settings(clean_up=0)})
    for order, ends in zip(ORDERS, (ENDS, 1), strict=True):
        status = OrderStatus(
            order=order.identity, epoch=1, phase="Succeeded", counts=Counts(succeeded=1), percent=100, finished=NOW
        )
        ended = a_fulfilment(order.identity).task(0)
        await replica.write({keys.order(order.identity): order.build(), keys.order_status(order.identity): status})
        await replica.write({keys.ended(order.identity, f"F{at:03}"): ended.ended("done") for at in range(ends)})


def left(replica: Replica) -> int:
    snapshot = replica.cache.snapshot
    return sum(snapshot.count(tree) for tree in (keys.ORDERS, keys.ORDER_STATUS, keys.ENDED))


async def clean(replica: Replica, writer: FencedWriter, folder: Path) -> CleanUp:
    archive = Archive(folder, "r", ManualClock(), full_bytes=1 << 20)
    cleaning = CleanUp(replica.ledgers, replica.settling(writer), ManualClock(), archive)
    for _ in range(5):
        for key in cleaning.every_key():
            await cleaning.reconcile(key)
    return cleaning


def kept(folder: Path) -> dict[str, Any]:
    """As a reader takes it: of several lines of one order the first."""
    found: dict[str, Any] = {}
    for path in sorted(folder.glob("*.jsonl")):
        for line in path.read_text().splitlines():
            order = json.loads(line)
            found.setdefault(order["id"], order)
    return found


async def test_every_order_is_on_disk_whole_however_often_its_leader_dies(etcd: Etcd, tmp_path: Path) -> None:
    for writes in itertools.count():
        folder = tmp_path / f"archive-{writes}"
        folder.mkdir()
        died = False
        async with following(etcd.endpoint, Replica) as first:
            await first.wipe()
            await finished_orders(first)
            term, _ = await lead(first)
            try:
                await clean(first, FencedWriter(Mortal(term, writes)), folder)
            except Deposed:
                died = True
            gone = {order.identity for order in ORDERS} - set(first.cache.snapshot.names(keys.ORDERS))
            assert gone <= set(kept(folder)), "what is deleted was on disk before"
            await term.end()
        async with following(etcd.endpoint, Replica) as second:
            _, writer = await lead(second)
            await clean(second, writer, folder)
            assert left(second) == 0
        found = kept(folder)
        assert {name: len(order["ended"]) for name, order in found.items()} == {
            ORDERS[0].identity: ENDS,
            ORDERS[1].identity: 1,
        }, f"after {writes} writes"
        assert all(order["order"]["id"] == name == order["status"]["order"] for name, order in found.items())
        if not died:
            break
    assert writes >= 3


async def test_an_archive_that_cannot_be_written_stops_the_deletion_and_says_so(etcd: Etcd, tmp_path: Path) -> None:
    folder = tmp_path / "missing"
    async with following(etcd.endpoint, Replica) as replica:
        await finished_orders(replica)
        before = left(replica)
        _, writer = await lead(replica)
        cleaning = await clean(replica, writer, folder)
        assert left(replica) == before
        told = replica.cache.snapshot.archive_status()
        assert told is not None
        assert "No such file" in told.why
        folder.mkdir()
        for key in [*cleaning.every_key()] * 3:
            await cleaning.reconcile(key)
        assert left(replica) == 0
        assert replica.cache.snapshot.archive_status() is None
        assert len(kept(folder)) == 2


async def test_a_leader_without_an_archive_takes_the_complaint_of_the_last_one_back(etcd: Etcd, tmp_path: Path) -> None:
    async with following(etcd.endpoint, Replica) as replica:
        await finished_orders(replica)
        term, writer = await lead(replica)
        await clean(replica, writer, tmp_path / "missing")
        await term.end()
        _, writer = await lead(replica)
        cleaning = CleanUp(replica.ledgers, replica.settling(writer), ManualClock())
        for key in [*cleaning.every_key()] * 3:
            await cleaning.reconcile(key)
        assert (left(replica), replica.cache.snapshot.archive_status()) == (0, None)
