"""The API under odd conditions: leadership, freshness, poison, junk, slow readers, etcd away."""

from __future__ import annotations

import asyncio
import socket
from itertools import count
from pathlib import Path
from typing import Any

import grpc
import pytest

from controlplane.apiserver.queries.views.named_view import TargetView
from controlplane.apiserver.queries.views.object_view import Filter
from controlplane.apiserver.queries.watching import ChangeMarks
from controlplane.model import errors
from controlplane.model.fulfilment import Ended, EndedTask, Fulfilment, Observed, ObservedTask, TaskRef
from controlplane.model.leadership import Candidate, Cycle, Term
from controlplane.model.target import Live, TargetStatus
from controlplane.store import codec, keys, transaction
from controlplane.store.transaction import Item
from controlplane.wire.v1 import cluster_pb2, common_pb2, jobs_pb2, orders_pb2, targets_pb2
from tests.component.api_stage import Api, an_api, an_order, mint, refusal
from tests.etcd import Etcd, running_etcd


def a_term(epoch: int, name: str, address: str) -> Term:
    return Term(epoch=epoch, id=name, since="2026-01-01T00:00:00.000Z", grpc=address, http="http://127.0.0.1:1")


async def test_nobody_leads_is_an_answer_without_fields(api: Api) -> None:
    leader = await api.cluster.GetLeader(cluster_pb2.LeaderRequest())
    assert not leader.HasField("id")
    error = await refusal(api.cluster.StepDown(cluster_pb2.StepDownRequest()))
    assert isinstance(error, errors.Unavailable)


async def test_a_standby_hands_a_step_down_to_the_leader(api: Api, shared: Etcd) -> None:
    async with an_api(shared.endpoint, "replica-2") as standby:
        api.leadership.term = a_term(7, "replica-1", api.address)
        api.leadership.mine = True
        standby.leadership.term = api.leadership.term
        answer = await standby.cluster.StepDown(cluster_pb2.StepDownRequest())
        assert answer.epoch == 7
        # The standby still believes in it, the replica itself knows better, and nobody asks in circles.
        api.leadership.term = a_term(9, "replica-2", standby.address)
        error = await refusal(standby.cluster.StepDown(cluster_pb2.StepDownRequest()))
        assert isinstance(error, errors.Unavailable)


async def test_a_watcher_of_the_leader_hears_of_each_change(api: Api) -> None:
    call = api.cluster.WatchLeader(cluster_pb2.LeaderRequest())
    assert not (await call.read()).HasField("id")
    api.leadership.term = a_term(7, "replica-1", api.address)
    await api.write({keys.term(7): api.leadership.term})
    leader = await call.read()
    assert (leader.id, leader.epoch) == ("replica-1", 7)
    call.cancel()


async def test_status_names_every_candidate_and_who_leads(api: Api) -> None:
    revision = await api.write(
        {
            keys.candidate(number): codec.encode(
                Candidate(id=name, incarnation=name, grpc="g", http="h", pulse="p", pid=number, version="1")
            )
            for number, name in ((1, "replica-1"), (2, "replica-2"))
        },
    )
    api.leadership.term = a_term(revision, "replica-1", api.address)
    status = await api.cluster.Status(cluster_pb2.StatusRequest())
    assert {replica.id for replica in status.replicas} == {"replica-1", "replica-2"}
    assert status.leader.id == "replica-1"
    assert (status.id, status.keys) == ("replica-1", 2)
    assert not any(replica.HasField("clock_off") for replica in status.replicas)
    api.leadership.off = {"replica-2": -3600.0}
    status = await api.cluster.Status(cluster_pb2.StatusRequest())
    assert [(one.id, one.clock_off) for one in status.replicas if one.HasField("clock_off")] == [("replica-2", -3600)]


async def test_terms_and_cycles_are_listed_oldest_first(api: Api) -> None:
    cycles = [
        Cycle(
            epoch=epoch, n=n, revision=1, now="", seed=0, settings_digest="", engine="e", considered=n, placed=0,
            seconds=0.5, hash="",
        )
        for epoch, n in ((5, 1), (5, 2), (12, 3))
    ]  # fmt: skip
    values = {keys.cycle(cycle.epoch, cycle.n): codec.encode(cycle) for cycle in cycles}
    values |= {keys.term(epoch): codec.encode(a_term(epoch, "replica-1", "g")) for epoch in (12, 5)}
    await api.write(values)
    page = await api.cycles.List(common_pb2.ListRequest(limit=2))
    assert [cycle.n for cycle in page.items] == [1, 2]
    page = await api.cycles.List(common_pb2.ListRequest(page_token=page.next_page_token))
    assert [cycle.n for cycle in page.items] == [3]
    assert (await api.cycles.Get(common_pb2.GetRequest(name="3"))).epoch == 12
    assert isinstance(await refusal(api.cycles.Get(common_pb2.GetRequest(name="x"))), errors.Invalid)
    terms = await api.cluster.ListTerms(common_pb2.ListRequest())
    assert [term.epoch for term in terms.items] == [5, 12]


async def test_two_replicas_at_the_same_revision_have_the_same_hash(api: Api, shared: Etcd) -> None:
    async with an_api(shared.endpoint, "replica-2") as other:
        answer = await api.orders.Submit(an_order())
        hashes = []
        for one in (api, other):
            await one.cache.reached(answer.revision, 10)
            hashes.append(await one.cluster.Hash(cluster_pb2.HashRequest()))
        assert hashes[0] == hashes[1]
        assert hashes[0].keys == 1


async def test_a_read_of_a_revision_that_is_not_there_yet_waits_and_then_says_so(api: Api) -> None:
    answer = await api.orders.Submit(an_order())
    got = await api.orders.Get(common_pb2.GetRequest(name=answer.item.id, min_revision=answer.revision))
    assert got.id == answer.item.id
    future = common_pb2.ListRequest(min_revision=answer.revision + 1000)
    waiting = asyncio.ensure_future(refusal(api.orders.List(future, timeout=2)))
    assert isinstance(await waiting, errors.Unavailable | errors.OutcomeUnknown)
    error = await refusal(api.orders.List(common_pb2.ListRequest(min_revision=-1)))
    assert isinstance(error, errors.Invalid)


async def test_poison_in_etcd_is_told_where_it_is_asked_for_and_stepped_over_elsewhere(api: Api) -> None:
    good = (await api.orders.Submit(an_order())).item.id
    bad = mint.make()
    await api.jobs.Create(jobs_pb2.Job(name="good"))
    await api.write(
        {
            keys.order(bad): b"not json",
            keys.config("jobs", "bad"): b'{"kind":"Job","command":7}',
            keys.config("packets", "bad"): b'{"kind":"Packet","name":"bad","jobs":[{"job":"good","count":-5}]}',
            keys.order_status(good): b"\xff\xfe",
        },
    )
    for call in (
        api.orders.Get(common_pb2.GetRequest(name=bad)),
        api.jobs.Get(common_pb2.GetRequest(name="bad")),
        api.orders.Cancel(orders_pb2.OrderRequest(id=bad)),
    ):
        error = await refusal(call)
        assert isinstance(error, errors.Broken)
        assert "cannot be read" in str(error)
    assert [item.id for item in (await api.orders.List(common_pb2.ListRequest())).items] == [good]
    assert [item.name for item in (await api.jobs.List(common_pb2.ListRequest())).items] == ["good"]
    assert (await api.orders.Get(common_pb2.GetRequest(name=good))).status.phase == "Pending"
    error = await refusal(api.orders.Submit(an_order(packet="bad")))
    assert (type(error), getattr(error, "field", "")) == (errors.Invalid, "packet.jobs[0].count")
    assert (await api.jobs.Update(jobs_pb2.Job(name="bad", image="mended"))).item.image == "mended"


async def test_junk_on_the_port_harms_nobody(api: Api) -> None:
    host, _, port = api.address.partition(":")
    for junk in (b"\x00" * 4096, b"GET / HTTP/1.1\r\n\r\n", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\xff" * 4096):
        with socket.create_connection((host, int(port)), timeout=5) as connection:
            connection.sendall(junk)
    for method in ("/controlplane.v1.Orders/Submit", "/controlplane.v1.Cluster/Apply", "/controlplane.v1.Jobs/Create"):
        call: Any = api.channel.unary_unary(method)
        with pytest.raises(grpc.aio.AioRpcError):
            await call(b"\xff\xff\xff\xff junk")
    assert (await api.orders.Submit(an_order())).item.id


async def test_a_request_above_the_limit_is_refused_politely(api: Api) -> None:
    order = an_order(owner="x" * (4 << 20))
    assert isinstance(await refusal(api.orders.Submit(order)), errors.LimitExceeded)
    order = an_order(owner="x" * 100_000)
    error = await refusal(api.orders.Submit(order))
    assert isinstance(error, errors.LimitExceeded)
    assert error.field == "owner"


async def test_a_slow_watcher_gets_the_latest_state_of_each_object(api: Api) -> None:
    feed = ChangeMarks(TargetView(), Filter())
    stop = api.cache.subscribe(feed.hear)
    for name in ("here", "there"):
        await api.targets.Create(targets_pb2.Target(name=name))
    for number in range(50):
        last = await api.targets.Update(targets_pb2.Target(name="here", labels={"number": str(number)}))
    gone = await api.targets.Delete(common_pb2.DeleteRequest(name="there"))
    await api.cache.reached(gone.revision, 10)
    assert await feed.take() == {"here": (last.revision, False), "there": (gone.revision, True)}
    stop()


async def test_joined_parts_are_sent_again_when_any_of_them_changes(api: Api) -> None:
    await api.targets.Create(targets_pb2.Target(name="here"))
    call = api.targets.Watch(common_pb2.WatchRequest(min_revision=api.cache.revision))
    assert (await call.read()).object.name == "here"
    assert (await call.read()).type == "sync"
    live = Live(target="here", session="s", instance="i", secret_digest="d", driver="process", capacity={"cpu": 4})
    await api.write({keys.live("here"): live})
    event = await call.read()
    assert dict(event.object.live.capacity) == {"cpu": 4}
    status = TargetStatus(target="here", epoch=1, phase="Ready", used={"cpu": 1}, free={"cpu": 3})
    await api.write({keys.target_status("here"): status})
    event = await call.read()
    assert (event.object.status.phase, dict(event.object.status.free)) == ("Ready", {"cpu": 3})
    await api.store.commit(Item((), (transaction.delete(keys.live("here")),)))
    event = await call.read()
    assert (event.type, event.object.HasField("live")) == ("put", False)
    call.cancel()


async def test_fulfilments_and_tasks_show_what_joblets_saw_and_how_attempts_ended(api: Api) -> None:
    order = (await api.orders.Submit(an_order(count=4))).item.id
    running, over = mint.make(), mint.make()
    placed = Fulfilment(
        id=running, epoch=1, cycle=1, order=order, target="here",
        tasks=(TaskRef(job="job-1", index=0, attempt=1), TaskRef(job="job-1", index=3, attempt=1)),
    )  # fmt: skip
    seen = Observed(
        id=running, target="here", session="s", report=1, phase="Running",
        tasks=(ObservedTask(job="job-1", index=0, attempt=1, phase="Running", percent=40),),
    )  # fmt: skip
    failed = EndedTask(
        job="job-1", index=1, attempt=1, phase="Failed", decision="fail", exit_code=3, artefacts=("a://b",)
    )
    again = EndedTask(job="job-1", index=2, attempt=1, phase="Failed", decision="retry", reason="Lost")
    ended = Ended(id=over, order=order, target="there", epoch=1, cycle=1, tasks=(failed, again), ended="")
    call = api.fulfilments.Watch(common_pb2.WatchRequest(order=order))
    assert (await call.read()).type == "sync"
    await api.write(
        {
            keys.desired("here", running): codec.encode(placed),
            keys.observed("here", running): codec.encode(seen),
            keys.ended(order, over): codec.encode(ended),
        },
    )
    event = await call.read()
    assert (event.type, event.object.id, event.object.observed.phase) == ("put", running, "Running")
    listed = await api.fulfilments.List(common_pb2.ListRequest(order=order))
    assert [item.id for item in listed.items] == [running]
    assert not (await api.fulfilments.List(common_pb2.ListRequest(target="there"))).items
    assert (await api.fulfilments.Get(common_pb2.GetRequest(name=running))).target == "here"
    shown = (await api.orders.Get(common_pb2.GetRequest(name=order))).tasks
    assert [(task.index, task.phase, task.attempt, task.target) for task in shown] == [
        (0, "Running", 1, "here"),
        (1, "Failed", 1, "there"),
        (2, "Pending", 1, ""),
        (3, "Placed", 1, "here"),
    ]
    assert (shown[0].percent, shown[1].exit_code, shown[1].artefacts, shown[2].reason) == (
        40,
        3,
        ["a://b"],
        "NoTargets",
    )
    await api.store.commit(
        Item(
            (), (transaction.delete(keys.desired("here", running)), transaction.delete(keys.observed("here", running)))
        )
    )
    event = await call.read()
    assert (event.type, event.object.id) == ("delete", running)
    call.cancel()


async def test_a_target_with_work_on_it_cannot_be_deleted(api: Api) -> None:
    await api.targets.Create(targets_pb2.Target(name="here"))
    placed = Fulfilment(id=mint.make(), epoch=1, cycle=1, order=mint.make(), target="here", tasks=())
    await api.write({keys.desired("here", placed.id): placed})
    error = await refusal(api.targets.Delete(common_pb2.DeleteRequest(name="here")))
    assert isinstance(error, errors.IllegalTransition)


async def test_while_etcd_is_away_writes_say_so_and_reads_go_on(tmp_path: Path) -> None:
    with running_etcd(tmp_path / "etcd") as etcd:
        async with an_api(etcd.endpoint) as api:
            kept = await api.orders.Submit(an_order())
            await api.cache.reached(kept.revision, 10)
            etcd.kill()
            error = await refusal(api.orders.Submit(an_order()))
            assert isinstance(error, errors.Unavailable | errors.OutcomeUnknown)
            assert (await api.orders.Get(common_pb2.GetRequest(name=kept.item.id))).id == kept.item.id
            etcd.start()
            order = an_order(identity=mint.make())
            while True:
                try:
                    answer = await api.orders.Submit(order)
                    break
                except grpc.aio.AioRpcError:
                    continue
            assert answer.item.id == order.id


async def fill(api: Api) -> None:
    """Writes until etcd itself refuses for want of space: a write that only took too long does not mean that."""
    for number in count():
        try:
            await api.store.commit(Item((), (transaction.put(f"/fill/{number}", b"x" * 1_000_000),)))
        except errors.ControlPlaneError as error:
            if "database space exceeded" in str(error):
                return


async def test_an_etcd_without_space_is_named_as_the_cause(tmp_path: Path) -> None:
    with running_etcd(tmp_path / "etcd", ["--quota-backend-bytes=4194304"]) as etcd:
        async with an_api(etcd.endpoint) as api:
            await fill(api)
            error = await refusal(api.orders.Submit(an_order()))
            assert isinstance(error, errors.Unavailable)
            assert "out of space" in str(error)
            assert not (await api.orders.List(common_pb2.ListRequest())).items
