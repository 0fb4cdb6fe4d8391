"""What the reader of a watch is told when the stream moves from one replica to the next."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from controlplane.client import Client
from controlplane.client.caller import CallTimeouts
from controlplane.model import errors
from controlplane.wire.v1 import cluster_pb2, common_pb2, jobs_pb2
from tests.unit.client.scripted_replica import ScriptedReplica


def put(name: str, revision: int, image: str = "") -> jobs_pb2.JobEvent:
    return jobs_pb2.JobEvent(type="put", revision=revision, object=jobs_pb2.Job(name=name, image=image))


def sync(revision: int) -> jobs_pb2.JobEvent:
    return jobs_pb2.JobEvent(type="sync", revision=revision)


def streaming(*events: Any) -> Any:
    async def answer(request: Any) -> AsyncIterator[Any]:
        for event in events:
            yield event

    return answer


async def told(client: Client, count: int) -> list[tuple[str, str, str]]:
    events = []
    async for event in client.jobs.watch(common_pb2.WatchRequest()):
        events.append((event.type, event.object.name, event.object.image))
        if len(events) == count:
            break
    return events


async def test_what_was_told_is_not_told_again_and_what_changed_or_vanished_in_between_is() -> None:
    first = ScriptedReplica(Jobs_Watch=streaming(put("same", 1), put("changed", 2), put("gone", 3), sync(3)))
    second = ScriptedReplica(Jobs_Watch=streaming(put("same", 1), put("changed", 5, "new"), sync(6)))
    async with first.serve(), second.serve(), Client([first.endpoint, second.endpoint]) as client:
        events = await told(client, 7)
    assert events[:4] == [("put", "same", ""), ("put", "changed", ""), ("put", "gone", ""), ("sync", "", "")]
    assert events[4:] == [("put", "changed", "new"), ("delete", "gone", ""), ("sync", "", "")]


async def test_the_next_replica_is_asked_to_have_reached_what_was_seen() -> None:
    first = ScriptedReplica(Jobs_Watch=streaming(put("a", 17), sync(18)))
    second = ScriptedReplica(Jobs_Watch=streaming(put("a", 17), sync(20)))
    async with first.serve(), second.serve(), Client([first.endpoint, second.endpoint]) as client:
        await told(client, 3)
    assert second.requests[0][1].min_revision == 18


async def test_a_watch_ends_with_unavailable_when_nobody_can_be_reached() -> None:
    timeouts = CallTimeouts(connect_seconds=0.2, attempt_seconds=0.5, total_seconds=0.3)
    async with Client(["127.0.0.1:1"], timeouts=timeouts) as client:
        with pytest.raises(errors.Unavailable):
            await told(client, 1)


async def test_the_same_leader_is_told_once() -> None:
    def leads(name: str) -> cluster_pb2.Leader:
        return cluster_pb2.Leader(id=name, epoch=1)

    first = ScriptedReplica(Cluster_WatchLeader=streaming(leads("a"), leads("a"), leads("b")))
    second = ScriptedReplica(Cluster_WatchLeader=streaming(leads("b"), leads("c")))
    seen = []
    async with first.serve(), second.serve(), Client([first.endpoint, second.endpoint]) as client:
        async for leader in client.cluster.watch_leader():
            seen.append(leader.id)
            if leader.id == "c":
                break
    assert seen == ["a", "b", "c"]
