"""A leader that dies after any of its writes leaves nothing that the next one cannot bring to the same end."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

import msgspec
import pytest

from controlplane.aio.clock import SystemClock
from controlplane.aio.failpoint import Failpoints
from controlplane.controller_manager.clean_up import CleanUp
from controlplane.controller_manager.order_controller import OrderController
from controlplane.controller_manager.runner import Controller
from controlplane.controller_manager.target_controller import TargetController
from controlplane.model.errors import Conflict, Deposed
from controlplane.model.job import FailureMatch, FailurePolicy
from controlplane.model.order import Counts, Move, Order, OrderStatus, Release, TaskSelection
from controlplane.model.settings import Settings
from controlplane.model.target import Target, TargetStatus
from controlplane.scheduler.cycle import Scheduler
from controlplane.store import keys
from controlplane.store.fenced import FencedWriter
from tests.builders import (
    NOW,
    FulfilmentBuilder,
    OrderBuilder,
    a_fulfilment,
    a_session,
    a_target,
    an_identity,
    an_order,
)
from tests.clock import ManualClock
from tests.component.leader_stage import Mortal, Replica, following, lead, running
from tests.etcd import Etcd

Setup = Callable[[Replica], Awaitable[None]]
# What differs from run to run and says nothing about where things stand.
_VARIES = ("epoch", "ended", "finished", "started", "since", "drain_since", "created", "cycle", "answered",
           "not_before")  # fmt: skip


async def converge(replica: Replica, writer: FencedWriter) -> None:
    """Asks every controller about every key until a whole round changes nothing; time passes between rounds."""
    clock = ManualClock()
    makers = (OrderController, TargetController, CleanUp)
    controllers: list[Controller] = [make(replica.ledgers, replica.settling(writer), clock) for make in makers]
    for _ in range(50):
        before = replica.cache.revision
        for controller, key in [(one, key) for one in controllers for key in one.every_key()]:
            with suppress(Conflict):
                await controller.reconcile(key)
        clock.pass_seconds(10)
        if replica.cache.revision == before and clock.monotonic() > 1030:
            return
    raise AssertionError("the controllers never come to rest")


def state(replica: Replica) -> dict[str, Any]:
    """All that leaders write, and which orders there are, without what varies."""
    trees = (keys.DESIRED, keys.CLAIMS, keys.ENDED, keys.ORDER_STATUS, keys.TARGET_STATUS, keys.ORDERS)
    return replica.contents(trees, without=_VARIES)


def a_status(target: str) -> TargetStatus:
    return TargetStatus(target=target, epoch=1, phase="Ready")


def drained(*, timeout: float | None = None) -> Target:
    return msgspec.structs.replace(a_target("t1", cpu=8), drain=True, drain_timeout=timeout)


async def place(replica: Replica, *builders: FulfilmentBuilder) -> None:
    for builder in builders:
        claims = {keys.claim(claim.resource): claim for claim in builder.claims()}
        await replica.write({keys.desired(builder.target, builder.identity): builder.build(), **claims})


ORDER = an_order().of(4).jobs(cpu=1)
OTHER = an_order().with_priority(7).build()
PLACED = [a_fulfilment(ORDER.identity).task(at).holding(*(["licence"] if at == 0 else [])) for at in range(4)]


async def ends_and_a_cancel(replica: Replica) -> None:
    """One task succeeded, one failed, one is lost, one runs; then the user cancels."""
    await replica.join("t1", cpu=8)
    await replica.write({keys.order(ORDER.identity): ORDER.build()})
    await place(replica, *PLACED)
    for builder, phase in zip(PLACED, ("Succeeded", "Failed", "Failed", "Running"), strict=True):
        reason = "Lost" if builder is PLACED[2] else ""
        report = builder.observed(phase, reason=reason)
        await replica.write({keys.observed("t1", builder.identity): report})
    await replica.write({keys.order(ORDER.identity): ORDER.cancelled().build()})


async def a_lost_target(replica: Replica) -> None:
    """The joblet is gone: one of its tasks had succeeded, the others are lost, one of them with a claim."""
    await replica.join("t1", cpu=8)
    await replica.write({keys.order(ORDER.identity): ORDER.build()})
    await place(replica, *PLACED)
    await replica.write({keys.observed("t1", PLACED[1].identity): PLACED[1].observed("Succeeded")})
    await replica.write({keys.observed("t1", PLACED[2].identity): PLACED[2].observed("Running")})
    await replica.write({keys.live("t1"): None, keys.target_status("t1"): a_status("t1")})


async def a_drained_target(replica: Replica) -> None:
    """The wish is old, and two of its tasks still run: they are stopped; what had ended, and a stop of before, stay."""
    await replica.join("t1", cpu=8)
    await replica.write({keys.order(ORDER.identity): ORDER.build()})
    await place(replica, *PLACED)
    wanted = msgspec.structs.replace(PLACED[3].build(), want="stop", reason="Preempted")
    await replica.write({keys.desired("t1", PLACED[3].identity): wanted})
    await replica.write({keys.observed("t1", PLACED[1].identity): PLACED[1].observed("Succeeded")})
    await replica.write({keys.config("targets", "t1"): drained(timeout=0)})


async def a_drained_target_that_is_empty(replica: Replica) -> None:
    await replica.join("t1", cpu=8)
    await replica.write({keys.config("targets", "t1"): drained()})


async def a_deleted_target(replica: Replica) -> None:
    """With its joblet, and with what was placed at the moment of its deletion; beside it one that has nothing."""
    await replica.join("t1", cpu=8)
    await replica.write({keys.order(ORDER.identity): ORDER.build()})
    await place(replica, *PLACED[:2])
    await replica.write({keys.target_status("t1"): a_status("t1"), keys.target_status("t2"): a_status("t2")})
    await replica.write({keys.config("targets", "t1"): None})


async def a_deleted_target_that_is_lost(replica: Replica) -> None:
    await a_lost_target(replica)
    await replica.write({keys.config("targets", "t1"): None})


async def a_target_that_returns(replica: Replica) -> None:
    """It was given up, its joblet is back, and what is left of its old work is dead."""
    await a_lost_target(replica)
    failed = TargetStatus(target="t1", epoch=1, phase="Failed", stop_within=2)
    await replica.write({keys.target_status("t1"): failed})
    await replica.write({keys.live("t1"): a_session("t1", cpu=8)})


async def old_orders(replica: Replica) -> None:
    """A finished order with more ended attempts than one transaction deletes, and one that is not finished."""
    await replica.write({keys.SETTINGS: Settings(clean_up=0)})
    finished = OrderStatus(
        order=ORDER.identity, epoch=1, phase="Succeeded", counts=Counts(succeeded=4), percent=100, finished=NOW
    )
    await replica.write({keys.order(ORDER.identity): ORDER.build(), keys.order_status(ORDER.identity): finished})
    await replica.write({keys.order(OTHER.id): OTHER})
    for part in range(2):
        names = [keys.ended(ORDER.identity, f"F{part}-{at:02d}") for at in range(60)]
        await replica.write({name: PLACED[0].ended("done") for name in names})


def with_policies(builder: OrderBuilder, *policies: FailurePolicy, **said: Any) -> Order:
    return msgspec.structs.replace(builder.build(), failure_policies=policies, **said)


async def ends_by_policy(replica: Replica) -> None:
    """Tasks that are ignored, tried again elsewhere, held; one holds a claim."""
    await replica.join("t1", cpu=8)
    policies = (
        FailurePolicy(on=FailureMatch(reasons=("TimedOut",)), action="ignore"),
        FailurePolicy(on=FailureMatch(reasons=("Evicted",)), action="retry", backoff=1, elsewhere=True),
        FailurePolicy(on=FailureMatch(reasons=("ImageError",)), action="hold"),
    )
    await replica.write({keys.order(ORDER.identity): with_policies(ORDER, *policies)})
    await place(replica, *PLACED)
    for builder, reason in zip(PLACED, ("Evicted", "TimedOut", "ImageError", "Failed"), strict=True):
        await replica.write({keys.observed("t1", builder.identity): builder.observed("Failed", reason=reason)})


async def a_failed_order(replica: Replica) -> None:
    """One task fails the whole order: of the others one runs, one stopped, one never began."""
    await replica.join("t1", cpu=8)
    await replica.write({keys.order(ORDER.identity): with_policies(ORDER, FailurePolicy(action="fail_order"))})
    await place(replica, *PLACED[:3])
    await replica.write({keys.observed("t1", PLACED[0].identity): PLACED[0].observed("Failed", reason="Failed")})
    await replica.write({keys.observed("t1", PLACED[1].identity): PLACED[1].observed("Running")})
    await replica.write({keys.observed("t1", PLACED[2].identity): PLACED[2].observed("Cancelled")})


async def wishes_about_tasks(replica: Replica) -> None:
    """One is to be cancelled, one to be moved, one was and its target confirmed, one was held and is released."""
    await replica.join("t1", cpu=8)
    moves = tuple(Move(job="job-0", index=index, attempt=1) for index in (1, 2))
    order = with_policies(ORDER, FailurePolicy(action="hold"), cancel_tasks=(TaskSelection(job="job-0", index=0),))
    await replica.write({keys.order(ORDER.identity): order})
    await place(replica, *PLACED)
    held = {keys.ended(ORDER.identity, PLACED[3].identity): PLACED[3].ended("hold")}
    await replica.write({**held, keys.desired("t1", PLACED[3].identity): None})
    releases = (Release(until=1 << 40),)
    stopping = msgspec.structs.replace(PLACED[2].build(), want="stop", reason="Moved")
    await replica.write({keys.desired("t1", PLACED[2].identity): stopping})
    await replica.write({keys.observed("t1", PLACED[2].identity): PLACED[2].observed("Cancelled")})
    changed = msgspec.structs.replace(order, moves=moves, releases=releases)
    await replica.write({keys.order(ORDER.identity): changed})


async def a_deadline(replica: Replica) -> None:
    """It passed long ago: one task runs, one was stopped for it, the others wait."""
    await replica.join("t1", cpu=8)
    await replica.write({keys.order(ORDER.identity): msgspec.structs.replace(ORDER.build(), deadline=1)})
    await place(replica, *PLACED[:2])
    stopping = msgspec.structs.replace(PLACED[1].build(), want="stop", reason="DeadlineExceeded")
    await replica.write({keys.desired("t1", PLACED[1].identity): stopping})
    await replica.write({keys.observed("t1", PLACED[1].identity): PLACED[1].observed("Cancelled")})


async def end_of(etcd: Etcd, setup: Setup, writes: int) -> tuple[dict[str, Any], bool]:
    """Where everything stands when the first leader died after so many writes, and whether it did die."""
    died = False
    async with following(etcd.endpoint, Replica) as first:
        await first.wipe()
        await setup(first)
        term, _ = await lead(first)
        try:
            await converge(first, FencedWriter(Mortal(term, writes)))
        except Deposed:
            died = True
        await term.end()
    async with following(etcd.endpoint, Replica) as second:
        _, writer = await lead(second)
        await converge(second, writer)
        return state(second), died


@pytest.mark.parametrize(
    ("setup", "least"),
    [
        (ends_and_a_cancel, 3),
        (a_lost_target, 3),
        (a_drained_target, 3),
        (a_drained_target_that_is_empty, 2),
        (a_deleted_target, 4),
        (a_deleted_target_that_is_lost, 3),
        (a_target_that_returns, 2),
        (old_orders, 3),
        (ends_by_policy, 3),
        (a_failed_order, 3),
        (wishes_about_tasks, 3),
        (a_deadline, 3),
    ],
)
async def test_controllers_come_to_the_same_end_however_often_their_leader_dies(
    etcd: Etcd, setup: Setup, least: int
) -> None:
    expected, died = await end_of(etcd, setup, 1_000_000)
    assert not died
    for writes in itertools.count():
        found, died = await end_of(etcd, setup, writes)
        assert found == expected, f"after {writes} writes"
        if not died:
            break
    assert writes >= least


async def test_each_of_these_ends_as_it_should(etcd: Etcd) -> None:
    ends: dict[str, tuple[str, dict[str, int]]] = {}
    decided: dict[str, list[str]] = {}
    for setup in (ends_by_policy, a_failed_order, wishes_about_tasks, a_deadline):
        found, _ = await end_of(etcd, setup, 1_000_000)
        status = found[keys.order_status(ORDER.identity)]
        ends[setup.__name__] = status["phase"], {name: count for name, count in status["counts"].items() if count}
        ended = [value for key, value in found.items() if "/status/ended/" in key]
        decided[setup.__name__] = sorted(task["decision"] for one in ended for task in one["tasks"])
    assert ends == {
        "ends_by_policy": ("Running", {"pending": 1, "succeeded": 1, "failed": 1, "held": 1}),
        "a_failed_order": ("Running", {"running": 1, "failed": 1, "cancelled": 2}),
        "wishes_about_tasks": ("Running", {"pending": 2, "placed": 2}),
        "a_deadline": ("Running", {"placed": 1, "failed": 3}),
    }
    assert decided == {
        "ends_by_policy": ["fail", "hold", "ignore", "retry"],
        "a_failed_order": ["cancel", "fail_order"],
        "wishes_about_tasks": ["hold", "move"],
        "a_deadline": ["fail"],
    }


async def test_placements_are_made_once_however_often_their_leader_dies(etcd: Etcd) -> None:
    clock = SystemClock()
    order = an_order().of(60).jobs(cpu=1).of(2).holding("licence").jobs(cpu=1).build()
    # Three items of placements, one of a placement with its claim, and the record of the cycle.
    for writes in range(5):
        async with following(etcd.endpoint, Replica) as first:
            await first.wipe()
            await first.join("t1", cpu=40)
            await first.join("t2", cpu=40)
            ready = {keys.target_status(name): a_status(name) for name in ("t1", "t2")}
            await first.write({keys.order(order.id): order, **ready})
            term, _ = await lead(first)
            dying = Scheduler(
                first.ledgers,
                FencedWriter(Mortal(term, writes)),
                clock,
                make_identity=an_identity,
                failpoints=Failpoints(),
            )
            with pytest.raises(Deposed):
                await dying.run()
            await term.end()
        async with following(etcd.endpoint, Replica) as second:
            _, writer = await lead(second)
            scheduler = Scheduler(second.ledgers, writer, clock, make_identity=an_identity, failpoints=Failpoints())
            async with running(scheduler.run()):
                await second.until(lambda: len(second.placed(order.id)) == 61)
            check_placements(second, order.id)


def check_placements(replica: Replica, order: str) -> None:
    placed = replica.placed(order)
    attempts = Counter((task.job, task.index, task.attempt) for one in placed for task in one.tasks)
    assert set(attempts.values()) == {1}
    assert all(attempt == 1 for _, _, attempt in attempts)
    claim = replica.read(keys.CLAIMS, "licence")
    assert claim is not None
    assert [one.id for one in placed if one.holds] == [claim.fulfilment]
    assert max(Counter(one.target for one in placed).values()) <= 40
