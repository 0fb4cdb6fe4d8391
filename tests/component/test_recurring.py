"""Recurring orders against a real etcd: every run once, whichever leader dies after whichever write."""

from __future__ import annotations

import itertools
from contextlib import suppress
from datetime import timedelta
from typing import Any

import pytest
from msgspec.structs import replace

from controlplane.aio.failpoint import Failpoints
from controlplane.controller_manager.clean_up import CleanUp
from controlplane.controller_manager.order_controller import OrderController
from controlplane.controller_manager.recurring import MOST_OPEN, Recurring
from controlplane.controller_manager.runner import Controller
from controlplane.model import schedule, times
from controlplane.model.errors import Conflict, Deposed
from controlplane.model.order import Counts, Order, OrderStatus
from controlplane.model.schedule import Schedule
from controlplane.model.settings import Quota, Settings
from controlplane.scheduler.cycle import Scheduler
from controlplane.store import keys
from controlplane.store.fenced import FencedWriter
from tests.builders import NOW, an_identity, an_order
from tests.clock import ManualClock
from tests.component.leader_stage import Mortal, Replica, following, lead, running
from tests.component.test_controllers_interrupted import state
from tests.etcd import Etcd

START = times.parse(NOW, "now")


def a_template(cron: str = "*/5 * * * * *", **said: Any) -> Order:
    return replace(an_order().of(2).jobs(cpu=1).build(), schedule=Schedule(cron=cron, **said))


def runs_of(replica: Replica, template: Order) -> list[str]:
    """The times of the runs that are there."""
    found = [entry.read() for entry in replica.cache.snapshot.all(keys.ORDERS)]
    return sorted(order.scheduled or "" for order in found if order.template == template.id)


def at(*seconds: float) -> list[str]:
    return [times.show(START + timedelta(seconds=second)) for second in seconds]


def controllers(replica: Replica, writer: FencedWriter, clock: ManualClock) -> list[Controller]:
    return [make(replica.ledgers, replica.settling(writer), clock) for make in (Recurring, OrderController, CleanUp)]


async def rounds(replica: Replica, writer: FencedWriter, clock: ManualClock, count: int) -> None:
    """Every controller is asked about every key, so often; ten seconds pass after each round."""
    asked = controllers(replica, writer, clock)
    for _ in range(count):
        for controller, key in [(one, key) for one in asked for key in one.every_key()]:
            with suppress(Conflict):
                while (again := await controller.reconcile(key)) is not None and not again.after_seconds:
                    continue
        clock.pass_seconds(10)


@pytest.mark.parametrize(
    ("said", "made"),
    [
        ({"missed": "all", "limit": 7}, at(5, 10, 15, 20, 25, 30, 35)),
        ({"overlap": "replace", "limit": 4}, at(10, 20, 30, 40)),
        ({"overlap": "skip", "until": at(40)[0]}, at(5)),
    ],
)
async def test_every_run_is_made_once_however_often_the_leader_dies(
    etcd: Etcd, said: dict[str, Any], made: list[str]
) -> None:
    template = a_template(**said)
    expected = None
    for writes in itertools.chain([1_000_000], itertools.count()):
        died, clock = False, ManualClock()
        async with following(etcd.endpoint, Replica) as first:
            await first.wipe()
            await first.write({keys.order(template.id): template})
            term, _ = await lead(first)
            try:
                await rounds(first, FencedWriter(Mortal(term, writes)), clock, 6)
            except Deposed:
                died = True
            await term.end()
        async with following(etcd.endpoint, Replica) as second:
            _, writer = await lead(second)
            await rounds(second, writer, clock, 10)
            expected = expected or state(second)
            assert runs_of(second, template) == made, f"after {writes} writes"
            assert state(second) == expected, f"after {writes} writes"
        if not died and writes < 1_000_000:
            break
    assert writes >= 3


async def test_a_run_that_gives_way_is_cancelled_and_names_the_one_that_took_its_place(etcd: Etcd) -> None:
    template, clock = a_template(overlap="replace"), ManualClock()
    async with following(etcd.endpoint, Replica) as replica:
        await replica.write({keys.order(template.id): template})
        _, writer = await lead(replica)
        await rounds(replica, writer, clock, 4)
        names = [schedule.run_identity(template.id, START + timedelta(seconds=second)) for second in (10, 20, 30)]
        told = [replica.read(keys.ORDER_STATUS, name) for name in names]
        assert [status.phase if status else "" for status in told] == ["Cancelled", "Cancelled", ""]
        assert [status.replaced_by for status in told if status] == names[1:]


async def test_a_run_that_was_cleaned_up_is_never_made_again(etcd: Etcd) -> None:
    template, clock = a_template("*/10 * * * * *", overlap="replace", missed="all"), ManualClock()
    async with following(etcd.endpoint, Replica) as replica:
        await replica.write({keys.SETTINGS: Settings(clean_up=0), keys.order(template.id): template})
        for _ in range(3):
            # Each time another leader, that knows no more than what is in etcd.
            term, writer = await lead(replica)
            await rounds(replica, writer, clock, 3)
            await term.end()
        told = replica.read(keys.ORDER_STATUS, template.id)
        assert told is not None
        assert told.runs == 8
        assert runs_of(replica, template) == at(70, 80), "the last is under way, one gave way, all others are gone"


async def test_a_note_that_cannot_be_read_makes_no_run_twice(etcd: Etcd) -> None:
    template, clock = a_template(missed="all"), ManualClock()
    async with following(etcd.endpoint, Replica) as replica:
        await replica.write({keys.order(template.id): template})
        _, writer = await lead(replica)
        await rounds(replica, writer, clock, 2)
        made = runs_of(replica, template)
        await replica.write({keys.order_status(template.id): b"poison"})
        await rounds(replica, writer, clock, 2)
        assert runs_of(replica, template) == [*made, *at(25, 30)], "those after the poison was found"


async def test_it_is_paused_resumed_and_cancelled_while_its_runs_go_on(etcd: Etcd) -> None:
    template, clock = a_template("*/10 * * * * *", missed="skip"), ManualClock()
    async with following(etcd.endpoint, Replica) as replica:
        await replica.write({keys.order(template.id): template})
        _, writer = await lead(replica)
        await rounds(replica, writer, clock, 2)
        await replica.write({keys.order(template.id): replace(template, paused=True)})
        await rounds(replica, writer, clock, 2)
        assert (replica.phase(template.id), runs_of(replica, template)) == ("Paused", at(10))
        await replica.write({keys.order(template.id): template})
        await rounds(replica, writer, clock, 2)
        assert (replica.phase(template.id), runs_of(replica, template)) == ("Running", at(10, 40, 50))
        await replica.write({keys.order(template.id): replace(template, cancel=True)})
        await rounds(replica, writer, clock, 3)
        assert (replica.phase(template.id), runs_of(replica, template)) == ("Cancelled", at(10, 40, 50))
        assert all(ledger.order.template == template.id for ledger in replica.ledgers.orders.values())
        assert not any(ledger.order.cancel for ledger in replica.ledgers.orders.values())


async def test_a_bounded_one_succeeds_when_its_last_run_is_over(etcd: Etcd) -> None:
    template, clock = a_template(limit=1), ManualClock()
    async with following(etcd.endpoint, Replica) as replica:
        await replica.write({keys.order(template.id): template})
        _, writer = await lead(replica)
        await rounds(replica, writer, clock, 3)
        assert replica.phase(template.id) == "Running"
        (run,) = replica.ledgers.orders
        await replica.write({keys.order(run): replace(replica.ledgers.orders[run].order, cancel=True)})
        await rounds(replica, writer, clock, 2)
        assert (replica.phase(run), replica.phase(template.id)) == ("Cancelled", "Succeeded")


async def test_the_scheduler_places_runs_and_never_the_template(etcd: Etcd) -> None:
    template, clock = a_template(), ManualClock()
    async with following(etcd.endpoint, Replica, clock) as replica:
        await replica.join("t1", cpu=8)
        await replica.write(
            {
                keys.order(template.id): template,
                keys.target_status("t1"): b'{"kind":"TargetStatus","target":"t1","epoch":1,"phase":"Ready"}',
            }
        )
        _, writer = await lead(replica)
        scheduler = Scheduler(replica.ledgers, writer, clock, make_identity=an_identity, failpoints=Failpoints())
        async with running(scheduler.run()):
            clock.pass_seconds(5)
            recurring = Recurring(replica.ledgers, replica.settling(writer), clock)
            again = await recurring.reconcile(template.id)
            assert again is not None
            assert 4.9 < again.after_seconds < 5.1
            run = schedule.run_identity(template.id, START + timedelta(seconds=5))
            await replica.until(lambda: len(replica.placed(run)) == 2)
        assert replica.placed(template.id) == []
        assert set(replica.ledgers.orders) == {run}


async def test_runs_ask_for_a_place_within_their_owners_quota(etcd: Etcd) -> None:
    template, clock = replace(a_template("*/10 * * * * *", missed="all"), owner="eve"), ManualClock()
    limits = Settings(quotas={"*": Quota(orders=2)})
    async with following(etcd.endpoint, Replica) as replica:
        await replica.write({keys.SETTINGS: limits, keys.order(template.id): template})
        _, writer = await lead(replica)
        await rounds(replica, writer, clock, 6)
        assert runs_of(replica, template) == at(10, 20)
        await end(replica, template, 10)
        await rounds(replica, writer, clock, 1)
        assert runs_of(replica, template) == at(10, 20, 30), "what waited is made when there is a place"
        await replica.write({keys.SETTINGS: Settings()})
        await rounds(replica, writer, clock, 1)
        assert runs_of(replica, template) == at(10, 20, 30, 40, 50, 60, 70)


async def test_so_many_runs_of_one_recurring_order_are_open_and_no_more(etcd: Etcd) -> None:
    template, clock = a_template("* * * * * *", missed="all"), ManualClock()
    async with following(etcd.endpoint, Replica) as replica:
        await replica.write({keys.order(template.id): template})
        _, writer = await lead(replica)
        await rounds(replica, writer, clock, 15)
        assert len(runs_of(replica, template)) == MOST_OPEN
        await end(replica, template, 1)
        await rounds(replica, writer, clock, 1)
        assert len(runs_of(replica, template)) == MOST_OPEN + 1


async def end(replica: Replica, template: Order, seconds: float) -> None:
    """The run of that time is over."""
    run = schedule.run_identity(template.id, START + timedelta(seconds=seconds))
    now = times.show(START)
    status = OrderStatus(order=run, epoch=1, phase="Succeeded", counts=Counts(succeeded=2), finished=now)
    await replica.write({keys.order_status(run): status})
