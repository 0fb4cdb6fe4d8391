"""A leader on a restored etcd: whatever was open ends as Lost, once, however often its leader dies meanwhile."""

from __future__ import annotations

import itertools
from contextlib import suppress

import msgspec

from controlplane.aio.clock import SystemClock
from controlplane.aio.failpoint import Failpoints
from controlplane.controller_manager.restoring import KEY, Restoring, take_note
from controlplane.model.cluster import ClusterStatus, Resume
from controlplane.model.errors import Conflict, Deposed
from controlplane.model.job import FailureMatch, FailurePolicy
from controlplane.model.target import TargetStatus
from controlplane.scheduler.cycle import Scheduler
from controlplane.store import keys
from controlplane.store.fenced import FencedWriter
from tests.builders import NOW, a_fulfilment, a_session, an_identity, an_order
from tests.component.leader_stage import Mortal, Replica, following, lead, running
from tests.etcd import Etcd

ORDER = an_order().of(4).jobs(cpu=1)
PLACED = [a_fulfilment(ORDER.identity).task(at).holding(*(["licence"] if at == 0 else [])) for at in range(3)]


async def a_backup(replica: Replica) -> None:
    """Three attempts are open, one of them with a claim and one that had ended and was not released yet."""
    await replica.join("t1", cpu=8)
    await replica.write({keys.order(ORDER.identity): ORDER.build()})
    await replica.write({keys.target_status("t1"): TargetStatus(target="t1", epoch=1, phase="Ready")})
    for builder in PLACED:
        claims = {keys.claim(claim.resource): claim for claim in builder.claims()}
        await replica.write({keys.desired("t1", builder.identity): builder.build(), **claims})
    await replica.write({keys.observed("t1", PLACED[1].identity): PLACED[1].observed("Succeeded")})
    await replica.write({keys.CLUSTER_STATUS: ClusterStatus(epoch=1, cluster_id="old", since=NOW)})


async def report(replica: Replica, known_attempt: int = 0) -> None:
    """The joblet of t1 comes to the restored etcd."""
    live = msgspec.structs.replace(a_session("t1", cpu=8), cluster="new", known_attempt=known_attempt)
    await replica.write({keys.live("t1"): live})


async def go(replica: Replica, writer: FencedWriter) -> None:
    """What a term does about a restore, until it has nothing to do any more."""
    await take_note(replica.ledgers, writer, SystemClock(), "new")
    restoring = Restoring(replica.ledgers, replica.settling(writer), SystemClock())
    with suppress(Conflict):
        while await restoring.reconcile(KEY) is not None:
            pass


def cluster(replica: Replica) -> ClusterStatus:
    found = replica.cache.snapshot.cluster_status()
    assert found is not None
    return found


async def test_every_open_attempt_ends_as_lost_however_often_the_leader_dies(etcd: Etcd) -> None:
    for writes in itertools.count():
        died = False
        async with following(etcd.endpoint, Replica) as first:
            await first.wipe()
            await a_backup(first)
            await report(first, known_attempt=3)
            term, _ = await lead(first)
            try:
                await go(first, FencedWriter(Mortal(term, writes)))
            except Deposed:
                died = True
            await term.end()
        async with following(etcd.endpoint, Replica) as second:
            _, writer = await lead(second)
            await go(second, writer)
            snapshot = second.cache.snapshot
            assert (snapshot.count(keys.DESIRED), snapshot.count(keys.CLAIMS)) == (0, 0)
            ends = {
                entry.parts[1]: [(task.reason, task.decision) for task in entry.read().tasks]
                for entry in snapshot.all(keys.ENDED, ORDER.identity)
            }
            assert ends == {
                PLACED[0].identity: [("Lost", "retry")],
                PLACED[1].identity: [("", "done")],
                PLACED[2].identity: [("Lost", "retry")],
            }, f"after {writes} writes"
            now = cluster(second)
            assert (now.cluster_id, now.restored, now.restoring, now.attempt_floor) == ("new", 1, False, 3)
        if not died:
            break
    assert writes >= 3


async def test_what_was_open_ends_as_the_orders_own_policies_say(etcd: Etcd) -> None:
    held = FailurePolicy(on=FailureMatch(reasons=("Lost",)), action="hold")
    async with following(etcd.endpoint, Replica) as replica:
        await a_backup(replica)
        order = msgspec.structs.replace(ORDER.build(), failure_policies=(held,))
        await replica.write({keys.order(ORDER.identity): order})
        await report(replica)
        _, writer = await lead(replica)
        await go(replica, writer)
        ends = [entry.read() for entry in replica.cache.snapshot.all(keys.ENDED, ORDER.identity)]
        assert sorted(task.decision for ended in ends for task in ended.tasks) == ["done", "hold", "hold"]


async def test_nothing_is_placed_before_the_joblet_has_reported_and_then_above_what_it_knows(etcd: Etcd) -> None:
    async with following(etcd.endpoint, Replica) as replica:
        await a_backup(replica)
        _, writer = await lead(replica)
        await go(replica, writer)
        assert (cluster(replica).restoring, cluster(replica).waiting_for) == (True, ("t1",))
        scheduler = Scheduler(
            replica.ledgers, writer, SystemClock(), make_identity=an_identity, failpoints=Failpoints()
        )
        async with running(scheduler.run()):
            await scheduler.begun.wait()
            assert {one.id for one in replica.placed(ORDER.identity)} == {one.identity for one in PLACED}
            await report(replica, known_attempt=3)
            await go(replica, writer)
            await replica.until(lambda: len(replica.placed(ORDER.identity)) == 3)
        assert {one.tasks[0].attempt for one in replica.placed(ORDER.identity)} == {4}


async def test_a_person_can_end_the_waiting_and_a_late_joblet_raises_the_floor(etcd: Etcd) -> None:
    async with following(etcd.endpoint, Replica) as replica:
        await a_backup(replica)
        _, writer = await lead(replica)
        await go(replica, writer)
        await replica.write({keys.RESTORE: Resume(cluster_id="new")})
        await go(replica, writer)
        now = cluster(replica)
        assert (now.restoring, now.waiting_for, now.attempt_floor) == (False, ("t1",), 0)
        await report(replica, known_attempt=7)
        await go(replica, writer)
        assert (cluster(replica).waiting_for, cluster(replica).attempt_floor) == ((), 7)
