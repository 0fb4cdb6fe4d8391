"""Two owners on one plane: the answers to ada are the same with bob's work and without, and never show it.

Only what the design lists stays visible of others: revisions, epochs, numbers of cycles, times, and the free room of a
target. It is masked before two answers are compared; everything else has to be equal.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Iterator
from typing import Any

import grpc
import pytest
from google.protobuf.json_format import MessageToDict
from google.protobuf.message import Message

from controlplane.model.event import About, Event
from controlplane.model.fulfilment import Claim
from controlplane.model.isolation import Isolated, Isolation
from controlplane.model.target import Target
from controlplane.model.totals import Totals
from controlplane.store import keys
from controlplane.wire.v1 import cluster_pb2, common_pb2, events_pb2, logs_pb2, orders_pb2, targets_pb2
from tests.builders import NOW
from tests.component.access_requests import requests_for
from tests.component.access_stage import (
    TARGET,
    Answer,
    Plane,
    Work,
    a_plane,
    method_of,
    plane_objects,
)
from tests.etcd import Etcd

ADA, BOB = Work("ada"), Work("bob")
# Work of bob that sorts before and behind all work of ada.
FIRST, LAST_ONE = Work("aaa-bob"), Work("zzz-bob")
MASKED = {
    *("revision", "atRevision", "answered", "until", "epoch", "cycle", "n"),
    *("created", "since", "first", "last", "started", "finished", "next", "cacheAgeSeconds"),
    *("free", "used"),
}
_NUMBERED = re.compile(r"\brevision \d+|\bafter \d+")
_TIME = re.compile(r"\d{4}-\d\d-\d\dT[\d:.]+Z")
LISTS = ("Jobs", "Packets", "Resources", "Orders", "Fulfilments", "Events", "Targets")
_BY_NAME = (
    *(f"{service}.{method}" for service in LISTS for method in ("Get", "Watch")),
    *("Orders.ListTasks", "Orders.Explain", "Orders.Plan"),
    *("Cluster.Status", "Cluster.GetLeader", "Cluster.WatchLeader", "Cluster.ListTerms", "Cluster.WatchTerms"),
    *(
        "Access.WhoAmI",
        "Access.CanI",
        "Cluster.GetTotals",
        "Cluster.WatchTotals",
        "Cycles.List",
        "Rules.List",
        "Secrets.List",
    ),
)
_CHANGES = (
    *("Jobs.Update", "Packets.Update", "Resources.Update", "Jobs.Delete", "Packets.Delete", "Resources.Delete"),
    *("Orders.Update", "Orders.Pause", "Orders.Resume", "Orders.MoveTask", "Orders.ReleaseTasks"),
    *("Orders.CancelTasks", "Orders.Cancel", "Orders.Delete", "Fulfilments.Get", "Targets.Update", "Targets.Delete"),
)


def script() -> Iterator[tuple[str, Message]]:
    """Every question that ada can ask, about her own work, about bob's, and about all; then her changes."""
    for work in (ADA, BOB):
        for name in _BY_NAME:
            yield name, requests_for(method_of(name), work)[0]
        for identity in work.orders:
            yield "Orders.Get", common_pb2.GetRequest(name=identity)
            yield "Orders.Explain", orders_pb2.ExplainRequest(id=identity)
            yield "Orders.ListTasks", orders_pb2.ListTasksRequest(id=identity)
            if identity in (work.waiting, work.running):
                yield "Orders.Logs", logs_pb2.LogsRequest(id=identity, index=0)
            yield "Fulfilments.List", common_pb2.ListRequest(order=identity)
            yield "Fulfilments.Watch", common_pb2.WatchRequest(order=identity)
            yield "Events.List", events_pb2.ListEventsRequest(about_kind="Order", about_name=identity)
            yield "Events.Watch", events_pb2.WatchEventsRequest(about_kind="Order", about_name=identity)
    for service in LISTS:
        if service != "Events":
            yield f"{service}.Watch", common_pb2.WatchRequest()
    yield "Events.Watch", events_pb2.WatchEventsRequest()
    yield "Fulfilments.List", common_pb2.ListRequest(target=TARGET)
    yield "Targets.List", common_pb2.ListRequest(phase="Ready")
    yield "Orders.List", common_pb2.ListRequest(phase="Running")
    yield "Orders.Plan", orders_pb2.PlanRequest(order=ADA.order(cpu=5000))
    yield "Orders.Plan", orders_pb2.PlanRequest(order=ADA.order(preempts=True))
    yield "Orders.Plan", orders_pb2.PlanRequest(order=ADA.order(), with_targets=[targets_pb2.Target(name="more")])
    for work in (BOB, ADA):
        for name in _CHANGES:
            yield name, requests_for(method_of(name), work)[0]


async def answers(plane: Plane, token: str) -> AsyncIterator[tuple[str, Answer]]:
    """The answers to the script, and all lists in pages of one."""
    for service in LISTS:
        page_token = ""
        for page in range(30):
            kind = events_pb2.ListEventsRequest if service == "Events" else common_pb2.ListRequest
            answer = await plane.ask(f"{service}.List", kind(limit=1, page_token=page_token), token)
            yield f"{service}.List page {page}", answer
            page_token = answer.messages[0].next_page_token
            if not page_token:
                break
    for name, request in script():
        yield f"{name} {MessageToDict(request)}", await plane.ask(name, request, token)


async def a_plane_answers(etcd: Etcd, *, with_bob: bool) -> dict[str, Answer]:
    etcd.etcdctl("del", "--prefix", "/controlplane/")
    async with a_plane(etcd) as plane:
        await plane.api.write(plane_objects(busy=4 if with_bob else 1))
        token = await plane.token("ada", "submitter", id=ADA.other_ids[6])
        if with_bob:
            for work in (FIRST, BOB, LAST_ONE):
                await work.begin(plane, await plane.token(work.owner, "submitter"))
            await plane.api.write(bobs_traces())
        await ADA.begin(plane, token)
        return {name: answer async for name, answer in answers(plane, token)}


def bobs_traces() -> dict[str, Any]:
    """What the leader keeps of bob's work in places that belong to nobody."""
    about = About(kind="Order", name=BOB.held)
    isolated = Isolated(about=about, part="scheduler", error=BOB.mark, count=3, since=NOW, again=NOW)
    event = Event(
        id=BOB.other_ids[7], about=About(kind="Target", name=TARGET), reason="Draining", message=BOB.mark,
        first=NOW, last=NOW,
    )  # fmt: skip
    return {
        keys.ISOLATED: Isolation(epoch=1, total=1, keys=(isolated,)),
        keys.TOTALS: Totals(epoch=1),
        keys.event(event.id): event,
        keys.claim(f"{BOB.mark}-resource"): Claim(
            resource=f"{BOB.mark}-resource", fulfilment=BOB.fulfilment, order=BOB.running, target=TARGET, epoch=1
        ),
        keys.config("jobs", f"{BOB.mark}-poison"): b'{"kind":"Job","name":7,"owner":"bob"}',
    }


def masked(answer: Answer) -> Any:
    messages = [_masked(MessageToDict(message)) for message in answer.messages]
    return answer.code, _masked(answer.details), messages


def _masked(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: "*" if key in MASKED else _masked(part) for key, part in value.items()}
    if isinstance(value, list):
        return [_masked(part) for part in value]
    return _TIME.sub("*", _NUMBERED.sub("*", value)) if isinstance(value, str) else value


FOREIGN = [text for work in (BOB, FIRST, LAST_ONE) for text in (*work.identities, work.owner, work.mark)]


def foreign_in(name: str, answer: Answer) -> list[str]:
    """What an answer tells of bob, apart from the names that the question itself held."""
    return [text for text in FOREIGN if text in answer.text and text not in name]


async def test_the_answers_to_one_owner_are_the_same_with_the_work_of_another_and_without(shared: Etcd) -> None:
    alone = await a_plane_answers(shared, with_bob=False)
    beside = await a_plane_answers(shared, with_bob=True)
    assert len(alone) > 150
    different = {
        name: (masked(alone[name]), masked(beside[name]))
        for name in alone
        if name not in beside or masked(alone[name]) != masked(beside[name])
    }
    assert not different, "\n".join(f"{name}\n  alone:  {a}\n  beside: {b}" for name, (a, b) in different.items())
    assert set(alone) == set(beside)
    told = {name: foreign_in(name, answer) for name, answer in beside.items() if foreign_in(name, answer)}
    assert not told
    assert_the_marks_can_be_found(alone)


def assert_the_marks_can_be_found(alone: dict[str, Answer]) -> None:
    """Else the search for marks would prove nothing: ada is told of her own work."""
    text = "".join(answer.text for answer in alone.values())
    assert all(identity in text for identity in (*ADA.orders, ADA.fulfilment, ADA.event))
    assert sum(ADA.mark in answer.text for answer in alone.values()) > 60
    assert sum(answer.code is grpc.StatusCode.OK for answer in alone.values()) > 80


@pytest.mark.parametrize("name", ["Jobs.Get", "Packets.Get", "Resources.Get", "Orders.Get"])
async def test_poison_of_another_owner_does_not_exist(emptied: Etcd, name: str) -> None:
    async with a_plane(emptied) as plane:
        token = await plane.token("ada", "submitter")
        identity = BOB.waiting if name == "Orders.Get" else "poison"
        kind = name.split(".")[0].lower()
        await plane.api.write(
            {keys.config(kind, identity): f'{{"kind":"x","name":7,"owner":"bob {BOB.mark}"}}'.encode()}
        )
        answer = await plane.ask(name, common_pb2.GetRequest(name=identity), token)
        assert answer.code is grpc.StatusCode.NOT_FOUND, answer
        assert BOB.mark not in answer.text


async def test_a_target_shows_an_owner_its_room_and_neither_statistics_nor_its_secret(emptied: Etcd) -> None:
    async with a_plane(emptied) as plane:
        secret = Target(name=TARGET, driver="kubernetes", kubeconfig_secret="plane-secret", owner="plane")
        await plane.api.write({**plane_objects(busy=7), keys.config("targets", TARGET): secret})
        ada, vera = await plane.token("ada", "submitter"), await plane.token("vera", "viewer")

        async def seen(token: str) -> list[targets_pb2.Target]:
            got = await plane.ask("Targets.Get", common_pb2.GetRequest(name=TARGET), token)
            listed = await plane.ask("Targets.List", common_pb2.ListRequest(limit=1), token)
            watched = await plane.ask("Targets.Watch", common_pb2.WatchRequest(name=TARGET), token)
            return [got.messages[0], listed.messages[0].items[0], watched.messages[0].object]

        for target in await seen(vera):
            assert (target.live.stats["running"], target.live.leftovers, target.kubeconfig_secret) == (
                7,
                7,
                "plane-secret",
            )
        for target in await seen(ada):
            assert (dict(target.live.stats), target.live.leftovers, target.live.reported) == ({}, 0, "")
            assert target.kubeconfig_secret == ""
            assert (target.live.capacity["cpu"], target.status.free["cpu"]) == (1000, 993)


async def test_the_status_tells_an_owner_the_level_of_etcds_space_and_no_amounts(emptied: Etcd) -> None:
    async with a_plane(emptied) as plane:
        space = await plane.api.space.look()
        ada, vera = await plane.token("ada", "submitter"), await plane.token("vera", "viewer")
        whole = (await plane.ask("Cluster.Status", cluster_pb2.StatusRequest(), vera)).messages[0]
        seen = (await plane.ask("Cluster.Status", cluster_pb2.StatusRequest(), ada)).messages[0]
        assert (whole.etcd.in_use, whole.etcd.size, whole.keys) == (space.in_use, space.size, 2)
        assert (seen.etcd.level, seen.etcd.in_use, seen.etcd.size, seen.keys) == (space.level, 0, 0, 0)
