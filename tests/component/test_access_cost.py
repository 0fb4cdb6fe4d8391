"""What a caller who sees some owners' objects pays for the work of others: no look at a foreign object, in lists and
in watches.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import grpc
import pytest

from controlplane.apiserver import authorisation
from controlplane.apiserver.queries.watching import ChangeMarks
from controlplane.cache import peek
from controlplane.cache.reflector import Delta
from controlplane.model.job import Job
from controlplane.store import keys
from controlplane.wire import transport
from controlplane.wire.v1 import common_pb2, events_pb2, jobs_pb2_grpc
from tests.component.access_stage import Plane, Work, a_plane, plane_objects
from tests.etcd import Etcd

ADA = Work("ada")
OTHERS = [Work(f"bob-{number}") for number in range(8)]
OWNED = ("Jobs", "Packets", "Resources", "Orders", "Fulfilments", "Events")


async def begin(plane: Plane, works: Sequence[Work]) -> None:
    for work in works:
        await work.begin(plane, await plane.token(work.owner, "submitter"))
    await plane.api.cache.reached(await plane.api.store.revision(), 10)


async def test_lists_look_at_no_foreign_object(emptied: Etcd, monkeypatch: pytest.MonkeyPatch) -> None:
    looks = 0
    owner = peek.owner

    def counted(entry: Any) -> str:
        nonlocal looks
        looks += 1
        return owner(entry)

    async with a_plane(emptied) as plane:
        await plane.api.write(plane_objects())
        await begin(plane, [ADA])
        token = await plane.token("ada", "submitter")

        async def cost(service: str) -> tuple[int, int]:
            nonlocal looks
            request = events_pb2.ListEventsRequest() if service == "Events" else common_pb2.ListRequest()
            looks = 0
            answer = await plane.ask(f"{service}.List", request, token)
            assert answer.code is grpc.StatusCode.OK
            return looks, len(answer.messages[0].items)

        monkeypatch.setattr(peek, "owner", counted)
        alone = {service: await cost(service) for service in OWNED}
        monkeypatch.setattr(peek, "owner", owner)
        assert all(items for _, items in alone.values())
        await begin(plane, OTHERS)
        monkeypatch.setattr(peek, "owner", counted)
        assert {service: await cost(service) for service in OWNED} == alone


async def test_a_watch_hears_of_no_foreign_object(emptied: Etcd, monkeypatch: pytest.MonkeyPatch) -> None:
    heard: list[Delta] = []
    hear = ChangeMarks.hear

    def counted(self: ChangeMarks, deltas: Sequence[Delta], revision: int) -> None:
        heard.extend(deltas)
        hear(self, deltas, revision)

    monkeypatch.setattr(ChangeMarks, "hear", counted)
    async with a_plane(emptied) as plane:
        await plane.api.write(plane_objects())
        token = await plane.token("ada", "submitter")
        calls = []
        for service in OWNED:
            request = events_pb2.WatchEventsRequest() if service == "Events" else common_pb2.WatchRequest()
            path = f"/controlplane.v1.{service}/Watch"
            watch: Any = plane.api.channel.unary_stream(path, lambda message: message.SerializeToString())
            call = watch(request, metadata=transport.credentials(token))
            calls.append(call)
            async with asyncio.timeout(10):
                await call.read()
        await begin(plane, OTHERS)
        assert heard == []
        await begin(plane, [ADA])
        assert {delta.tree for delta in heard} >= {keys.JOBS, keys.ORDERS, keys.ORDER_STATUS, keys.DESIRED, keys.EVENTS}
        for call in calls:
            async with asyncio.timeout(10):
                assert await call.read()
            call.cancel()


async def test_an_object_that_changes_its_owner_leaves_one_watch_and_enters_the_other(emptied: Etcd) -> None:
    async with a_plane(emptied) as plane:
        stub: Any = jobs_pb2_grpc.JobsStub(plane.api.channel)
        watches = {}
        for owner in ("ada", "bob"):
            token = await plane.token(owner, "submitter")
            watches[owner] = stub.Watch(common_pb2.WatchRequest(), metadata=transport.credentials(token))
            async with asyncio.timeout(10):
                assert (await watches[owner].read()).type == "sync"

        async def told(owner: str) -> tuple[str, str]:
            async with asyncio.timeout(10):
                event = await watches[owner].read()
            return event.type, event.object.name

        job = Job(name="moving", command=("run",))
        key = keys.config("jobs", "moving")
        for owner in ("ada", "bob"):
            await plane.api.write({key: Job(name=job.name, command=job.command, owner=owner)})
            assert await told(owner) == ("put", "moving")
        assert await told("ada") == ("delete", "moving")
        await plane.api.write({key: None})
        assert await told("bob") == ("delete", "moving")


def test_every_kind_with_owners_is_here() -> None:
    assert {service.removesuffix("s") for service in OWNED} == authorisation.OWNED
