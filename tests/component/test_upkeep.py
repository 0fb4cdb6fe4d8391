"""What a replica does for etcd and because of it: room, compaction, backups; on a real etcd."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from controlplane.aio.clock import SystemClock
from controlplane.controller_manager.compaction import Compaction
from controlplane.model import times
from controlplane.model.errors import AlreadyExists, Broken, LimitExceeded, NotFound, Unavailable
from controlplane.model.leadership import Term
from controlplane.model.settings import Settings
from controlplane.model.space import Level
from controlplane.standalone import snapshots
from controlplane.store import keys, maintenance
from controlplane.store.channel import EtcdOptions
from controlplane.store.kv import Store
from controlplane.store.space_watch import SpaceWatch
from controlplane.store.transaction import Item, put
from controlplane.wire.v1 import cluster_pb2, common_pb2, jobs_pb2, orders_pb2
from tests.clock import ManualClock
from tests.component.api_stage import an_api, an_order, mint, refusal
from tests.component.leader_stage import Replica, following
from tests.etcd import Etcd, running_etcd

MIB = 1 << 20


def files(folder: Path) -> list[Path]:
    return list(folder.glob("*copy*"))


async def grow(store: Store, name: str, mib: int) -> None:
    for number in range(2 * mib):
        await store.commit(Item(then=(put(f"/junk/{name}-{number}", b"x" * (MIB // 2 - 100)),)))


async def reaches(space: SpaceWatch, level: Level) -> None:
    """etcd tells what it wrote a moment later."""
    async with asyncio.timeout(20):
        while (await space.look()).level is not level:
            await asyncio.sleep(0.05)


async def looked(space: SpaceWatch) -> None:
    """etcd that was just started takes a moment to be reached."""
    async with asyncio.timeout(20):
        while True:
            try:
                await space.look()
            except Unavailable:
                await asyncio.sleep(0.05)


async def test_what_makes_etcd_grow_is_refused_while_it_is_nearly_full_and_all_else_goes_on(etcd: Etcd) -> None:
    async with an_api(etcd.endpoint, quota=10 * MIB) as api:
        first = (await api.orders.Submit(an_order(identity=mint.make()))).item.id
        repeated = an_order(identity=mint.make())
        await api.orders.Submit(repeated)
        await grow(api.store, "a", 10)
        await reaches(api.space, Level.FULL)
        job = jobs_pb2.Job(name="new", command=["true"])
        for call in (
            api.orders.Submit(an_order(identity=mint.make())),
            api.jobs.Create(job),
            api.cluster.Apply(cluster_pb2.ApplyRequest(objects=[cluster_pb2.Object(job=job)])),
        ):
            error = await refusal(call)
            assert isinstance(error, LimitExceeded)
            assert "short of space" in str(error)
            assert "clean_up" in str(error)
            assert "GiB" not in str(error), "that tells of the work of all owners"
        assert (await api.orders.Submit(repeated)).item.id == repeated.id, "what was accepted stays accepted"
        assert (await api.orders.Get(common_pb2.GetRequest(name=first))).id == first
        await api.orders.Cancel(orders_pb2.OrderRequest(id=first))
        await api.cluster.UpdateSettings(cluster_pb2.Settings(clean_up=60.0))
        told = (await api.cluster.Status(cluster_pb2.StatusRequest())).etcd
        assert (told.level, told.quota, told.alarm) == ("Full", 10 * MIB, False)


async def test_the_level_falls_by_itself_when_there_is_room_again(etcd: Etcd) -> None:
    store = Store(EtcdOptions((etcd.endpoint,)), SystemClock())
    space = SpaceWatch(store.channels, 10 * MIB)
    await grow(store, "a", 10)
    await reaches(space, Level.FULL)
    etcd.etcdctl("del", "--prefix", "/junk/")
    await store.compact(await store.revision())
    etcd.etcdctl("defrag")
    await reaches(space, Level.OK)
    await store.close()


async def test_an_alarm_of_etcd_means_full_whatever_the_replica_was_told_of_the_quota(tmp_path: Path) -> None:
    with running_etcd(tmp_path / "small", [f"--quota-backend-bytes={4 * MIB}"]) as etcd:
        store = Store(EtcdOptions((etcd.endpoint,)), SystemClock())
        space = SpaceWatch(store.channels, 8 << 30)
        assert (await space.look()).level is Level.OK
        # etcd learns its own size only ten times a second, so that more than its quota may be written first.
        with pytest.raises(Unavailable, match="space exceeded"):
            await grow(store, "a", 1000)
        found = await space.look()
        assert (found.level, found.alarm) == (Level.FULL, True)
        await store.close()


async def test_a_replica_does_not_go_on_with_another_etcd_than_it_began_with(etcd: Etcd, tmp_path: Path) -> None:
    store = Store(EtcdOptions((etcd.endpoint,)), SystemClock())
    await store.commit(Item(then=(put("/x", b"1"),)))
    space = SpaceWatch(store.channels, 8 << 30)
    await space.look()
    copy = tmp_path / "copy"
    await snapshots.save((etcd.endpoint,), copy)
    etcd.kill()
    snapshots.restore(copy, etcd.data, snapshots.Member(peer=etcd.peer), force=True)
    etcd.start()
    with pytest.raises(Broken, match="replaced"):
        await looked(space)
    await store.close()


async def test_history_that_nobody_else_compacts_is_compacted_by_the_leader(etcd: Etcd) -> None:
    clock = ManualClock()
    async with following(etcd.endpoint, Replica) as replica:
        await replica.write({keys.SETTINGS: Settings(history=600), keys.term(1): _term(clock)})
        space = SpaceWatch(replica.store.channels, 8 << 30)
        await space.look()
        compaction = Compaction(replica.ledgers, replica.store, space, clock)
        began = replica.cache.revision
        await compaction.reconcile("history")
        await replica.write({"/controlplane/x": b"1"})
        clock.pass_seconds(601)
        await compaction.reconcile("history")
        assert await maintenance.oldest(replica.store) == 1, "somebody else may still do it"
        clock.pass_seconds(100)
        await compaction.reconcile("history")
        assert await maintenance.oldest(replica.store) == began


async def test_history_that_somebody_else_compacts_is_left_alone_unless_etcd_is_crowded(etcd: Etcd) -> None:
    clock = ManualClock()
    async with following(etcd.endpoint, Replica) as replica:
        await replica.write({keys.SETTINGS: Settings(history=600)})
        space = SpaceWatch(replica.store.channels, 10 * MIB)
        await space.look()
        compaction = Compaction(replica.ledgers, replica.store, space, clock)
        await compaction.reconcile("history")
        foreign = await replica.write({"/controlplane/x": b"1"})
        clock.pass_seconds(650)
        await replica.store.compact(foreign)
        await compaction.reconcile("history")
        later = await replica.write({"/controlplane/x": b"2"})
        clock.pass_seconds(650)
        await compaction.reconcile("history")
        assert await maintenance.oldest(replica.store) == foreign
        await grow(replica.store, "a", 10)
        await reaches(space, Level.FULL)
        clock.pass_seconds(101)
        await compaction.reconcile("history")
        assert await maintenance.oldest(replica.store) >= later


def _term(clock: ManualClock) -> Term:
    return Term(epoch=1, id="a", since=times.show(clock.wall()))


async def test_a_backup_is_whole_and_a_restore_overwrites_nothing(etcd: Etcd, tmp_path: Path) -> None:
    etcd.etcdctl("put", "/controlplane/x", "1")
    copy, folder = tmp_path / "copy", tmp_path / "new" / "data"
    made = await snapshots.save((etcd.endpoint,), copy)
    assert (made.size, made.revision) == (copy.stat().st_size, 2)
    with pytest.raises(AlreadyExists, match="--force"):
        await snapshots.save((etcd.endpoint,), copy)
    await snapshots.save((etcd.endpoint,), copy, force=True)
    assert snapshots.restore(copy, folder, snapshots.Member()).aside is None
    with pytest.raises(AlreadyExists, match="--force"):
        snapshots.restore(copy, folder, snapshots.Member())
    again = snapshots.restore(copy, folder, snapshots.Member(), force=True)
    assert again.aside is not None
    assert (again.aside / "member").is_dir()
    assert {path.name for path in folder.parent.iterdir()} == {"data", "data.before-restore-1"}


async def test_a_damaged_or_missing_copy_is_refused_and_changes_nothing(etcd: Etcd, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    await snapshots.save((etcd.endpoint,), copy)
    damaged = bytearray(copy.read_bytes())
    damaged[1000] ^= 1
    copy.write_bytes(damaged)
    with pytest.raises(Broken, match="checksum"):
        snapshots.restore(copy, tmp_path / "data", snapshots.Member())
    with pytest.raises(NotFound, match="cannot be read"):
        snapshots.restore(tmp_path / "none", tmp_path / "data", snapshots.Member())
    assert not (tmp_path / "data").exists()


async def test_a_backup_that_breaks_off_leaves_no_file(etcd: Etcd, tmp_path: Path) -> None:
    etcd.kill()
    with pytest.raises(Unavailable):
        await snapshots.save((etcd.endpoint,), tmp_path / "copy")
    assert not files(tmp_path)
