"""The Events service and the totals of the Cluster service, as clients see them, over a real etcd."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest

from controlplane.aio.clock import SystemClock
from controlplane.model.errors import Invalid, NotFound
from controlplane.model.event import WARNING, About, Event, Folding, Happening
from controlplane.model.totals import Processed, Rates, TargetTotals, Totals
from controlplane.store import keys
from controlplane.store.event_log import EventLog, Leases
from controlplane.store.transaction import Item, put
from controlplane.wire.v1 import cluster_pb2, common_pb2, events_pb2
from controlplane.wire.v1.events_pb2_grpc import EventsStub
from tests.builders import NOW, an_identity
from tests.component.api_stage import Api, refusal

SECONDS = 15.0


def an_event(kind: str, name: str, reason: str = "Failed") -> Event:
    about = About(kind=kind, name=name)
    return Event(id=an_identity(), about=about, type=WARNING, reason=reason, by="ada", first=NOW, last=NOW, count=2)


async def kept(api: Api) -> list[Event]:
    events = [
        an_event("Order", "o1"),
        an_event("Order", "o2"),
        an_event("Target", "o1"),
        an_event("Order", "o1", "Held"),
    ]
    await api.write({keys.event(event.id): event for event in events})
    return events


def events_of(api: Api) -> Any:
    return EventsStub(api.channel)


@pytest.mark.parametrize(
    ("wanted", "positions"),
    [
        ({}, [0, 1, 2, 3]),
        ({"about_kind": "Order"}, [0, 1, 3]),
        ({"about_kind": "Order", "about_name": "o1"}, [0, 3]),
        ({"about_kind": "Rule"}, []),
    ],
)
async def test_events_are_listed_oldest_first_by_what_they_are_about(
    api: Api, wanted: dict[str, Any], positions: list[int]
) -> None:
    events = await kept(api)
    listed = await events_of(api).List(events_pb2.ListEventsRequest(**wanted))
    assert [item.id for item in listed.items] == [events[position].id for position in positions]


async def test_events_come_in_pages(api: Api) -> None:
    events = await kept(api)
    request = events_pb2.ListEventsRequest(limit=2, about_kind="Order")
    first = await events_of(api).List(request)
    request.page_token = first.next_page_token
    second = await events_of(api).List(request)
    assert [item.id for page in (first, second) for item in page.items] == [events[n].id for n in (0, 1, 3)]
    assert second.next_page_token == ""


async def test_one_event_is_shown_as_it_is_stored(api: Api) -> None:
    event = (await kept(api))[0]
    shown = await events_of(api).Get(common_pb2.GetRequest(name=event.id))
    assert (shown.about.kind, shown.about.name, shown.type, shown.reason) == ("Order", "o1", "Warning", "Failed")
    assert (shown.by, shown.count, shown.first, shown.last) == ("ada", 2, NOW, NOW)
    assert isinstance(await refusal(events_of(api).Get(common_pb2.GetRequest(name="nothing"))), NotFound)


async def test_a_name_without_a_kind_is_refused(api: Api) -> None:
    for request, call in (
        (events_pb2.ListEventsRequest(about_name="o1"), events_of(api).List),
        (events_pb2.WatchEventsRequest(about_name="o1"), lambda asked: events_of(api).Watch(asked).read()),
    ):
        refused = await refusal(call(request))
        assert isinstance(refused, Invalid)
        assert refused.field == "about_kind"


async def test_a_watch_follows_what_it_asked_for_until_it_expires(api: Api) -> None:
    events = await kept(api)
    watch = events_of(api).Watch(events_pb2.WatchEventsRequest(about_kind="Order", about_name="o1"))
    async with asyncio.timeout(SECONDS):
        there = [await watch.read() for _ in range(3)]
        assert [(one.type, one.object.id) for one in there[:2]] == [("put", events[0].id), ("put", events[3].id)]
        assert there[2].type == "sync"
        other, again = an_event("Order", "o2"), msgspec.structs.replace(events[0], count=5)
        await api.write({keys.event(other.id): other, keys.event(again.id): again})
        grown = await watch.read()
        assert (grown.object.id, grown.object.count) == (again.id, 5)
        await api.write({keys.event(again.id): None})
        gone = await watch.read()
        assert (gone.type, gone.object.id) == ("delete", again.id)
    watch.cancel()


async def test_poison_among_events_is_stepped_over(api: Api) -> None:
    events = await kept(api)
    revision = (await api.store.commit(Item(then=(put(keys.event("01BAD"), b"not json"),)))).revision
    await api.cache.reached(revision, SECONDS)
    asked: list[dict[str, Any]] = [{}, {"about_kind": "Order"}]
    for wanted in asked:
        listed = await events_of(api).List(events_pb2.ListEventsRequest(**wanted))
        assert "01BAD" not in [item.id for item in listed.items]
        assert events[0].id in [item.id for item in listed.items]


async def test_what_a_replica_records_itself_carries_no_epoch_and_hangs_on_a_lease(api: Api) -> None:
    clock = SystemClock()
    folding = Folding(an_identity, by="apiserver@replica-1", at=clock.monotonic())
    log = EventLog(folding, api.store.commit_group, Leases(api.store.grant, lambda: 60.0, clock), clock)
    for _ in range(3):
        log.record(Happening(about=About(kind="Target", name="t1"), reason="JobletRefused"))
    assert await log.flush()
    await api.cache.reached(await api.store.revision(), SECONDS)
    [entry] = api.cache.snapshot.all(keys.EVENTS)
    event = entry.read()
    assert (event.by, event.count, event.epoch) == ("apiserver@replica-1", 3, 0)
    assert entry.stored.lease


async def test_totals_are_all_zero_before_anybody_wrote_them(api: Api) -> None:
    assert (await api.cluster.GetTotals(cluster_pb2.TotalsRequest())).orders.total == 0


async def test_totals_are_shown_alone_and_in_the_status_and_can_be_watched(api: Api) -> None:
    totals = Totals(
        epoch=1,
        revision=9,
        at=NOW,
        orders=Processed(total=3, succeeded=2, failed=1),
        tasks=Processed(total=30, succeeded=30),
        queued=4,
        running=5,
        targets=TargetTotals(total=2, ready=2, busy=1, free=1),
        rates=Rates(orders_10s=1.5),
    )
    watch = api.cluster.WatchTotals(cluster_pb2.TotalsRequest())
    async with asyncio.timeout(SECONDS):
        assert (await watch.read()).orders.total == 0
        revision = await api.write({keys.TOTALS: totals})
        heard = await watch.read()
    watch.cancel()
    asked = await api.cluster.GetTotals(cluster_pb2.TotalsRequest(min_revision=revision))
    told = (await api.cluster.Status(cluster_pb2.StatusRequest())).totals
    assert heard == asked == told
    assert (told.orders.failed, told.tasks.total, told.queued, told.running) == (1, 30, 4, 5)
    assert (told.targets.free, told.rates.orders_10s, told.revision) == (1, 1.5, 9)
