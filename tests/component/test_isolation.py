"""One key that cannot be handled stops nothing but itself: the term goes on, and so do the orders of everybody else."""

from __future__ import annotations

import asyncio
import zoneinfo
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from controlplane.aio.clock import SystemClock
from controlplane.aio.failpoint import Failpoints
from controlplane.model.errors import LimitExceeded
from controlplane.model.fulfilment import Fulfilment, TaskRef, TaskSpec
from controlplane.model.order import Counts, OrderStatus
from controlplane.model.resource import Resource
from controlplane.model.scalepolicy import ScalePolicy, TargetTemplate
from controlplane.model.schedule import Schedule
from controlplane.model.settings import Quota, Settings
from controlplane.model.target import Target, TargetStatus, Window
from controlplane.quarantine import Quarantine
from controlplane.replay.past_cycles import replay
from controlplane.scheduler.cycle import Scheduler
from controlplane.store import keys
from controlplane.wire.v1 import cluster_pb2, common_pb2, orders_pb2, resources_pb2
from tests.builders import a_session, a_target, an_identity, an_order
from tests.component.api_stage import refusal
from tests.component.isolation_stage import Witness, a_plane
from tests.component.leader_stage import PATIENCE_SECONDS, following, lead, running
from tests.etcd import Etcd

Contents = dict[str, msgspec.Struct | bytes | None]
LAST = "76EZ91ZP0R0000000000000000"


@pytest.fixture
async def plane(etcd: Etcd) -> AsyncIterator[Witness]:
    async with a_plane(etcd) as started:
        yield started


def a_policy(provider: str, **more: Any) -> Contents:
    template = TargetTemplate(driver="process", capacity={"cpu": 1})
    policy = ScalePolicy(
        name="farm", provider=provider, metric="queue", threshold=0, min=1, max=3, step=1, template=template, **more
    )
    return {keys.config("scalepolicies", "farm"): policy}


def an_order_of(**change: Any) -> Contents:
    order = msgspec.structs.replace(an_order().jobs(cpu=1).build(), **change)
    return {keys.order(order.id): order}


def over_in_the_year_9999() -> Contents:
    order = msgspec.structs.replace(an_order().jobs(cpu=1).build(), id=LAST)
    status = OrderStatus(
        order=LAST, epoch=1, phase="Succeeded", counts=Counts(succeeded=1), finished="2026-01-01T00:00:00.000Z"
    )
    return {keys.order(LAST): order, keys.order_status(LAST): status}


def recurring(**change: Any) -> Contents:
    return an_order_of(schedule=Schedule(cron="* * * * *", tz=change.pop("tz", "UTC")), **change)


def tiny_under_a_quota() -> Contents:
    order = an_order().of(3).jobs(cpu=1e-310).build()
    quotas = {"*": Quota(quantities={"cpu": 64})}
    return {keys.order(order.id): order, keys.SETTINGS: Settings(quotas=quotas)}


def a_placement_made_at_no_time() -> Contents:
    """An order waits for the room that it takes, so that it matters when it ends; others have room elsewhere."""
    spec = TaskSpec(command=("true",), time_limit=100)
    fulfilment = Fulfilment(
        id=an_identity(), epoch=1, cycle=1, order=an_identity(), target="t1", jobs={"job-0": spec},
        tasks=(TaskRef(job="job-0", index=0, attempt=1),), requests={"cpu": 1}, created="x",
    )  # fmt: skip
    waiting = an_order().jobs(cpu=64).strict("t1").build()
    return {
        keys.desired("t1", fulfilment.id): fulfilment,
        keys.order(waiting.id): waiting,
        keys.config("targets", "t2"): a_target("t2", cpu=8),
        keys.live("t2"): a_session("t2", cpu=8),
    }


def windows_in_very_many_zones() -> Contents:
    """Each is closed for an hour, but some other is open then: when they change next takes long to find out."""
    zones = sorted(zoneinfo.available_timezones())[:64]
    windows = tuple(Window(from_="01:00", to="00:00", tz=zone) for zone in zones)
    named = {f"w{number}": Target(name=f"w{number}", id=an_identity(), windows=windows) for number in range(20)}
    shifted = {
        name: msgspec.structs.replace(target, windows=(*windows[number:], *windows[:number]))
        for number, (name, target) in enumerate(named.items())
    }
    return {keys.config("targets", name): target for name, target in shifted.items()}


POISON: dict[str, Callable[[], Contents]] = {
    "an order that is over, of the year 9999": over_in_the_year_9999,
    "a recurring order that begins where the calendar ends": lambda: recurring(not_before="9999-12-31T23:59:59.999Z"),
    "the same by the clocks of Tokyo": lambda: recurring(not_before="9999-12-31T20:00:00.000Z", tz="Asia/Tokyo"),
    "a recurring order that begins where the calendar begins": lambda: recurring(not_before="0001-01-01T00:00:00.000Z"),
    "an order made at no time, with a deadline": lambda: an_order_of(created="x", deadline=100),
    "an order that begins at no time": lambda: an_order_of(not_before="z"),
    "an order with an endless deadline": lambda: an_order_of(deadline=1e300),
    "a request that is next to nothing, under a quota": tiny_under_a_quota,
    "a target for more fulfilments than there are numbers": lambda: {
        keys.config("targets", "t0"): Target(name="t0", id=an_identity(), max_fulfilments=10**30)
    },
    "settings that remember failures for ever": lambda: {keys.SETTINGS: Settings(failure_memory=1e300)},
    "settings that keep finished orders for ever": lambda: {keys.SETTINGS: Settings(clean_up=1e300)},
    "targets with windows in very many time zones": windows_in_very_many_zones,
    "a placement made at no time": a_placement_made_at_no_time,
}


@pytest.mark.parametrize("contents", POISON.values(), ids=POISON.keys())
async def test_poison_of_the_right_types_ends_no_term(plane: Witness, contents: Callable[[], Contents]) -> None:
    await plane.write(contents())
    await plane.others_run()
    await asyncio.sleep(1.5)
    await plane.others_run(1)
    assert plane.terms() == 1


async def test_a_url_that_cannot_be_resolved_ends_no_term(etcd: Etcd, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("secret")
    async with a_plane(etcd, webhook_secret=f"file:{tmp_path / 'secret'}") as plane:
        await plane.write(a_policy("webhook", url="http://scaler..example.com/"))
        await plane.until(lambda: plane.cache.snapshot.count(keys.MADE) > 0)
        await plane.others_run()
        await asyncio.sleep(1.5)
        assert plane.terms() == 1


async def test_a_folder_that_cannot_be_made_ends_no_term(etcd: Etcd, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("a file where the folder should be")
    async with a_plane(etcd, local_targets=str(tmp_path / "file")) as plane:
        await plane.write(a_policy("local"))
        await plane.until(lambda: plane.cache.snapshot.count(keys.MADE) > 0)
        await plane.others_run()
        await asyncio.sleep(1.5)
        assert plane.terms() == 1


async def test_resources_that_do_not_fit_a_waiting_gang_are_refused(plane: Witness) -> None:
    """The exact sequence: a resource of 32 kB, a gang of 100 that waits for its time, both changed in one update."""
    order = await a_waiting_gang(plane)
    change = orders_pb2.UpdateOrderRequest(id=order, not_before="")
    change.resources.names.append("big")
    refused = await refusal(plane.orders.Update(change))
    assert isinstance(refused, LimitExceeded)
    assert refused.field == "resources"
    await plane.others_run()
    assert plane.terms() == 1


async def test_a_gang_that_is_too_large_for_a_transaction_is_isolated_and_says_so(plane: Witness) -> None:
    identity = await an_isolated_gang(plane)
    assert "1048576 bytes" in plane.isolated()["Order", identity]
    await plane.others_run()
    assert plane.terms() == 1
    assert plane.placed(identity) == []
    why = await plane.orders.Explain(orders_pb2.ExplainRequest(id=identity))
    assert "isolated" in why.conclusion
    assert "1048576 bytes" in why.conclusion
    assert [(group.reason, group.count) for group in why.groups] == [("Isolated", 100)]
    shown = await plane.orders.Get(common_pb2.GetRequest(name=identity))
    assert [(reason.reason, reason.count) for reason in shown.status.reasons] == [("Isolated", 100)]
    status = await plane.cluster.Status(cluster_pb2.StatusRequest())
    assert status.isolated == 1
    assert [(key.kind, key.name, key.part) for key in status.isolated_keys] == [("Order", identity, "scheduler")]
    await plane.until(lambda: identity in plane.told("HandlingFailed"))


async def test_an_isolated_order_can_be_cancelled(plane: Witness) -> None:
    identity = await an_isolated_gang(plane)
    await plane.orders.Cancel(orders_pb2.OrderRequest(id=identity))
    await plane.until(lambda: plane.phase(identity) == "Cancelled")
    await plane.until(lambda: not plane.isolated())
    assert plane.terms() == 1


async def test_an_isolated_order_that_is_mended_runs(plane: Witness) -> None:
    identity = await an_isolated_gang(plane)
    order = plane.read(keys.ORDERS, identity)
    assert order is not None
    await plane.write({keys.order(identity): msgspec.structs.replace(order, resources=())})
    await plane.until(lambda: len(plane.placed(identity)) == 100)
    await plane.until(lambda: not plane.isolated())


async def an_isolated_gang(plane: Witness) -> str:
    """As if an update with a large resource had been accepted: by an older replica, or before targets changed."""
    identity = await a_waiting_gang(plane)
    order = plane.read(keys.ORDERS, identity)
    assert order is not None
    big = Resource(name="big", key="BIG", value="x" * 32_000)
    await plane.write({keys.order(identity): msgspec.structs.replace(order, resources=(big,), not_before=None)})
    await plane.until(lambda: ("Order", identity) in plane.isolated())
    return identity


async def a_waiting_gang(plane: Witness) -> str:
    await plane.join("t2", cpu=200)
    await plane.resources.Create(resources_pb2.Resource(name="big", key="BIG", value="x" * 32_000))
    wish = orders_pb2.Order(not_before="2199-01-01T00:00:00Z")
    wish.packet.object.gang = True
    part = wish.packet.object.jobs.add(count=100)
    part.job.object.command.append("true")
    part.job.object.requests.of["cpu"] = 1
    accepted = await plane.orders.Submit(wish)
    return str(accepted.item.id)


async def test_cycles_that_left_an_order_out_can_be_replayed(plane: Witness) -> None:
    identity = await a_waiting_gang(plane)
    order = plane.read(keys.ORDERS, identity)
    assert order is not None
    big = Resource(name="big", key="BIG", value="x" * 32_000)
    await plane.write({keys.order(identity): msgspec.structs.replace(order, resources=(big,), not_before=None)})
    await plane.until(lambda: ("Order", identity) in plane.isolated())
    await plane.others_run()
    cycles = [entry.read() for entry in plane.cache.snapshot.all(keys.CYCLES)]
    assert any(cycle.isolated == (identity,) and cycle.isolated_total == 1 for cycle in cycles)
    for cycle in cycles:
        assert (await replay(plane.store, cycle)).replayed.same


async def test_what_fails_a_whole_cycle_ends_no_term_and_is_begun_again(etcd: Etcd) -> None:
    """A ledger of what owners have that cannot be read: it concerns no order and no target."""
    async with following(etcd.endpoint, Witness) as witness:
        term, writer = await lead(witness)
        quarantine = Quarantine(SystemClock())
        scheduler = Scheduler(
            witness.ledgers, writer, SystemClock(), make_identity=an_identity, failpoints=Failpoints(),
            quarantine=quarantine,
        )  # fmt: skip
        owners, witness.ledgers.owners = witness.ledgers.owners, None  # type: ignore[assignment]
        await witness.write({keys.target_status("t1"): TargetStatus(target="t1", epoch=term.epoch, phase="Ready")})
        async with running(scheduler.run()) as (work,):
            async with asyncio.timeout(PATIENCE_SECONDS):
                await scheduler.begun.wait()
            assert [key.about.name for key in quarantine.isolated(10)] == ["cycle"]
            witness.ledgers.owners = owners
            await witness.join("t1", cpu=4)
            waiting = await witness.submit(an_order().jobs(cpu=1))
            await witness.until(lambda: len(witness.placed(waiting.id)) == 1)
            async with asyncio.timeout(PATIENCE_SECONDS):
                while quarantine.total:
                    await asyncio.sleep(0.02)
            assert not work.done()
