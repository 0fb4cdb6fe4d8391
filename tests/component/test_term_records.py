"""Totals and events as a leader keeps them, on a real etcd: counted once, told once, across terms and interruptions."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import msgspec
import pytest

from controlplane.aio.clock import SystemClock, chance, wall_milliseconds
from controlplane.controller_manager.term_records import TermRecords
from controlplane.model.event import Event
from controlplane.model.identity import Mint
from controlplane.model.leadership import Term as TermRecord
from controlplane.model.order import Counts, OrderStatus
from controlplane.model.settings import Settings
from controlplane.model.target import TargetStatus
from controlplane.model.totals import Totals
from controlplane.store import keys
from controlplane.store.fenced import FencedWriter
from controlplane.verify.history import of_value
from controlplane.verify.p1_fenced import FencedCheck
from tests.builders import NOW, a_fulfilment, a_session, an_order
from tests.component.leader_stage import Mortal, Replica, Term, following, lead, running
from tests.etcd import Etcd

MINT = Mint(wall_milliseconds, chance)


class Watched(Replica):
    """A replica that keeps, as a real one does, from its start on."""

    def __init__(self, *args: object) -> None:
        super().__init__(*args)  # type: ignore[arg-type]
        self.keeping = TermRecords.on(
            self.ledgers, grant=self.store.grant, make_identity=MINT.make, replica="replica-1"
        )

    def totals(self) -> Totals:
        return self.cache.snapshot.totals() or Totals(epoch=0)

    def events(self) -> list[Event]:
        return sorted((entry.read() for entry in self.cache.snapshot.all(keys.EVENTS)), key=lambda event: event.id)

    def reasons(self) -> list[str]:
        return [event.reason for event in self.events()]

    async def finish(self, phase: str, **counts: int) -> str:
        """An order that was submitted and came to that end."""
        order = an_order().build()
        status = OrderStatus(order=order.id, epoch=1, phase=phase, counts=Counts(**counts))
        await self.write({keys.order(order.id): order})
        await self.write({keys.order_status(order.id): status})
        return order.id


@pytest.fixture
async def replica(etcd: Etcd) -> AsyncIterator[Watched]:
    async with following(etcd.endpoint, Watched) as replica:
        yield replica


@asynccontextmanager
async def leading(replica: Watched) -> AsyncIterator[Term]:
    term, writer = await lead(replica)
    record = TermRecord(epoch=term.epoch, id="replica-1", since=NOW)
    await replica.write({keys.term(term.epoch): record})
    async with running(replica.keeping.run(writer, SystemClock())):
        yield term
    await term.end()


async def test_totals_say_what_waits_runs_and_was_processed(replica: Watched) -> None:
    async with leading(replica):
        await replica.join("t1", cpu=8)
        await replica.join("t2", cpu=8)
        for target in ("t1", "t2"):
            await replica.write({keys.target_status(target): TargetStatus(target=target, epoch=1, phase="Ready")})
        order = an_order().of(3).jobs(cpu=1).build()
        placed = a_fulfilment(order.id).task(0)
        await replica.write({keys.order(order.id): order, keys.desired("t1", placed.identity): placed.build()})
        await replica.write({keys.observed("t1", placed.identity): placed.observed("Running")})
        await replica.finish("Failed", failed=2, succeeded=1)
        await replica.until(lambda: replica.totals().orders.total == 1 and replica.totals().running == 1)
        totals = replica.totals()
        assert (totals.orders.failed, totals.tasks.total, totals.tasks.failed, totals.tasks.succeeded) == (1, 3, 2, 1)
        assert (totals.open_orders, totals.queued, totals.placed, totals.running) == (1, 2, 0, 1)
        assert msgspec.structs.astuple(totals.targets) == (2, 2, 1, 1)
        done = {keys.ended(order.id, placed.identity): placed.ended("done"), keys.desired("t1", placed.identity): None}
        await replica.write({**done, keys.observed("t1", placed.identity): None})
        await replica.until(lambda: replica.totals().tasks.total == 4)
        assert (replica.totals().closed.total, replica.totals().targets.busy) == (3, 0)
        assert replica.totals().rates.orders_10s > 0


async def test_totals_are_written_once_a_second_at_most_and_not_at_all_when_nothing_changes(replica: Watched) -> None:
    written: list[float] = []
    clock = SystemClock()

    def hear(deltas: Sequence[object], _: int) -> None:
        written.extend(clock.monotonic() for delta in deltas if getattr(delta, "tree", "") == "status")

    stop = replica.cache.subscribe(hear)
    async with leading(replica):
        for _ in range(60):
            await replica.finish("Succeeded", succeeded=1)
            await asyncio.sleep(0.05)
        await replica.until(lambda: replica.totals().orders.total == 60)
    stop()
    assert all(later - earlier > 0.8 for earlier, later in itertools.pairwise(written)), written


async def test_a_new_leader_goes_on_counting_and_counts_nothing_twice(replica: Watched) -> None:
    for term in range(3):
        async with leading(replica):
            await replica.finish("Succeeded", succeeded=2)
            await replica.until(lambda term=term: replica.totals().orders.total == 1 + 2 * term)  # type: ignore[misc]
        # Ends that no leader had written down when it died.
        await replica.finish("Cancelled", cancelled=1)
    async with leading(replica):
        await replica.until(lambda: replica.totals().orders.total == 6)
        assert (replica.totals().orders.succeeded, replica.totals().orders.cancelled) == (3, 3)
        assert replica.totals().tasks.total == 9


async def test_a_replica_that_starts_later_goes_on_with_the_same_numbers(replica: Watched, etcd: Etcd) -> None:
    async with leading(replica):
        await replica.finish("Succeeded", succeeded=1)
        await replica.until(lambda: replica.totals().orders.total == 1)
    await replica.finish("Failed", failed=1)
    async with following(etcd.endpoint, Watched) as late, leading(late):
        await late.until(lambda: late.totals().orders.total == 2)
        assert (late.totals().orders.succeeded, late.totals().orders.failed) == (1, 1)


@pytest.mark.parametrize("writes", range(4))
async def test_a_leader_that_dies_after_any_of_its_writes_leaves_the_same_numbers_and_events(
    replica: Watched, writes: int
) -> None:
    term, _ = await lead(replica)
    keeping = asyncio.create_task(replica.keeping.run(FencedWriter(Mortal(term, writes)), SystemClock()))
    number = 0
    while not keeping.done():
        await replica.finish("Failed", failed=1)
        await replica.write({keys.live(f"t{number}"): a_session(f"t{number}", cpu=1)})
        await asyncio.wait({keeping}, timeout=0.3)
        number += 1
    assert isinstance(keeping.exception(), BaseExceptionGroup)
    await term.end()
    async with leading(replica):
        failed = sum(1 for _ in replica.cache.snapshot.all(keys.ORDER_STATUS))
        joined = sum(1 for _ in replica.cache.snapshot.all(keys.INVENTORY))
        await replica.until(lambda: replica.totals().orders.total == failed)
        await replica.until(lambda: replica.reasons().count("Joined") == joined)
        assert replica.reasons().count("Failed") == failed
        assert {event.count for event in replica.events()} == {1}


async def test_events_are_told_once_by_one_leader_after_the_other(replica: Watched) -> None:
    async with leading(replica):
        await replica.join("t1", cpu=1)
        await replica.until(lambda: "Joined" in replica.reasons())
    await replica.write({keys.live("t1"): None})
    async with leading(replica):
        await replica.until(lambda: "Left" in replica.reasons())
        await replica.join("t1", cpu=1)
        await replica.until(lambda: max(e.count for e in replica.events() if e.reason == "Joined") == 2)
    reasons = replica.reasons()
    assert (reasons.count("Joined"), reasons.count("Left"), reasons.count("LeaderElected")) == (1, 1, 2)


async def test_a_storm_is_bounded_and_told(replica: Watched) -> None:
    async with leading(replica):
        for start in range(0, 1000, 100):
            await replica.write({keys.live(f"t{n}"): a_session(f"t{n}", cpu=1) for n in range(start, start + 100)})
        await replica.until(lambda: "EventsDropped" in replica.reasons())
    told = next(event for event in replica.events() if event.reason == "EventsDropped")
    assert "Joined" in told.message
    assert len(replica.events()) < 700


async def test_events_hang_on_shared_leases_and_go_with_them(replica: Watched) -> None:
    await replica.write({keys.SETTINGS: Settings(event_ttl=60)})
    async with leading(replica):
        for number in range(5):
            await replica.join(f"t{number}", cpu=1)
        await replica.until(lambda: replica.reasons().count("Joined") == 5)
    leases = {entry.stored.lease for entry in replica.cache.snapshot.all(keys.EVENTS)}
    assert len(leases) <= 2
    assert 0 not in leases
    for lease in leases:
        await replica.store.revoke(lease)
    await replica.until(lambda: not replica.events())


async def test_a_lease_that_is_gone_is_replaced(replica: Watched) -> None:
    async with leading(replica):
        await replica.join("t1", cpu=1)
        await replica.until(lambda: "Joined" in replica.reasons())
        for lease in {entry.stored.lease for entry in replica.cache.snapshot.all(keys.EVENTS)}:
            await replica.store.revoke(lease)
        await replica.join("t2", cpu=1)
        await replica.until(lambda: "t2" in [event.about.name for event in replica.events()])


async def test_what_the_leader_keeps_carries_its_epoch(replica: Watched) -> None:
    async with leading(replica) as term:
        await replica.finish("Failed", failed=1)
        await replica.until(lambda: "Failed" in replica.reasons() and replica.totals().orders.total == 1)
        kept = [entry.stored for tree in (keys.EVENTS, keys.STATUS) for entry in replica.cache.snapshot.all(tree)]
        check = FencedCheck()
        check.start([of_value(entry.stored) for entry in replica.cache.snapshot.all(keys.CANDIDATES)])
        check.change(replica.cache.revision, [of_value(value) for value in kept])
        assert check.verdict().ok
        assert check.verdict().checked == len(kept)
        wrong = msgspec.structs.replace(replica.totals(), epoch=term.epoch + 1)
        await replica.write({keys.TOTALS: wrong})
        check.change(1, [of_value(entry.stored) for entry in replica.cache.snapshot.all(keys.STATUS)])
        assert not check.verdict().ok


async def test_a_stats_only_change_concerns_nobody(replica: Watched) -> None:
    await replica.join("t1", cpu=1)
    entry = replica.cache.snapshot.get(keys.INVENTORY, "t1", keys.LIVE)
    assert entry is not None
    live = a_session("t1", cpu=1)
    await replica.write({keys.live("t1"): live})
    touched: list[set[str]] = []
    stop = replica.ledgers.subscribe(lambda what: touched.append(what.targets | what.orders))
    await replica.write({keys.live("t1"): msgspec.structs.replace(live, stats={"load": 2.5}, reported=NOW)})
    await replica.write({keys.live("t1"): msgspec.structs.replace(live, capacity={"cpu": 2})})
    stop()
    assert touched == [set(), {"t1"}]
