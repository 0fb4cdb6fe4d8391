"""What is inside a request is decided object by object: no envelope hides a foreign owner, packet, job or resource."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import Any

import grpc
import pytest
from google.protobuf.message import Message

from controlplane.model.job import Job
from controlplane.model.order import Order
from controlplane.store import codec, keys
from controlplane.wire.v1 import cluster_pb2, common_pb2, jobs_pb2, orders_pb2, packets_pb2, resources_pb2
from tests.component.access_stage import TARGET, Answer, Plane, Work, a_plane, plane_objects
from tests.component.api_stage import mint
from tests.etcd import Etcd

Code = grpc.StatusCode
ADA, BOB = Work("ada"), Work("bob")


class Owners:
    """A plane with the work of ada and bob, and their tokens."""

    def __init__(self, plane: Plane, ada: str, bob: str) -> None:
        self.plane, self.ada, self.bob = plane, ada, bob

    async def asks(self, method: str, request: Message) -> Answer:
        return await self.plane.ask(method, request, self.ada)

    async def is_refused(self, method: str, request: Message, *codes: grpc.StatusCode) -> Answer:
        """To ada; nothing is written, and nothing is told that she did not say."""
        before = await self.plane.api.store.revision()
        answer = await self.asks(method, request)
        assert await self.plane.api.store.revision() == before, answer
        assert answer.code in (codes or (Code.NOT_FOUND, Code.PERMISSION_DENIED)), answer
        assert all(text not in answer.details or text in str(request) for text in (BOB.mark, *BOB.identities)), answer
        return answer


@pytest.fixture
async def owners(emptied: Etcd) -> AsyncIterator[Owners]:
    async with a_plane(emptied) as plane:
        await plane.api.write(plane_objects())
        tokens = [await plane.token(work.owner, "submitter") for work in (ADA, BOB)]
        for work, token in zip((ADA, BOB), tokens, strict=True):
            await work.begin(plane, token)
        yield Owners(plane, *tokens)


def with_packet(name: str) -> orders_pb2.Order:
    return orders_pb2.Order(packet=orders_pb2.PacketRef(name=name))


def with_inner_job(name: str) -> orders_pb2.Order:
    order = ADA.order()
    order.packet.object.jobs.add(count=1).job.name = name
    return order


def with_inner_resource(name: str) -> orders_pb2.Order:
    order = ADA.order()
    order.packet.object.jobs[0].job.object.resources.append(name)
    return order


def with_packet_resource(name: str) -> orders_pb2.Order:
    order = ADA.order()
    order.packet.object.resources.append(name)
    return order


FOREIGN_ORDERS: dict[str, Callable[[], orders_pb2.Order]] = {
    "a foreign owner": lambda: ADA.order(owner="bob"),
    "a foreign packet": lambda: with_packet(BOB.packet().name),
    "a foreign job in its packet": lambda: with_inner_job(BOB.job().name),
    "a foreign resource in an inline job": lambda: with_inner_resource(BOB.resource().name),
    "a foreign resource in an inline packet": lambda: with_packet_resource(BOB.resource().name),
}


@pytest.mark.parametrize("inside", FOREIGN_ORDERS)
async def test_an_order_with_something_foreign_inside_is_refused(owners: Owners, inside: str) -> None:
    order = FOREIGN_ORDERS[inside]()
    await owners.is_refused("Orders.Submit", order)
    await owners.is_refused("Orders.Create", order)
    await owners.is_refused("Orders.Plan", orders_pb2.PlanRequest(order=order))
    own = cluster_pb2.Object(job=ADA.job(name="ada-new", id=""))
    await owners.is_refused("Cluster.Apply", cluster_pb2.ApplyRequest(objects=[own, cluster_pb2.Object(order=order)]))


@pytest.mark.parametrize("inside", FOREIGN_ORDERS)
async def test_an_order_of_a_batch_with_something_foreign_inside_is_refused_alone(owners: Owners, inside: str) -> None:
    own = mint.make()
    batch = orders_pb2.SubmitBatchRequest(orders=[FOREIGN_ORDERS[inside](), ADA.order(own), FOREIGN_ORDERS[inside]()])
    before = await owners.plane.api.store.revision()
    results = (await owners.asks("Orders.SubmitBatch", batch)).messages[0].results
    assert [result.failure.code in ("NotFound", "Forbidden") for result in results] == [True, False, True]
    assert results[1].id == own
    assert await owners.plane.api.store.revision() == before + 1


FOREIGN_OBJECTS: dict[str, tuple[str, Callable[[], Message]]] = {
    "a packet of a foreign job": ("packet", lambda: packets_pb2.Packet(name="n", jobs=[_of(BOB.job().name)])),
    "a packet of a foreign resource": (
        "packet",
        lambda: packets_pb2.Packet(name="n", jobs=[_of(ADA.job().name)], resources=[BOB.resource().name]),
    ),
    "a job with a foreign resource": (
        "job",
        lambda: jobs_pb2.Job(name="n", command=["true"], resources=[BOB.resource().name]),
    ),
    "a job of a foreign owner": ("job", lambda: jobs_pb2.Job(name="n", command=["true"], owner="bob")),
    "a resource of a foreign owner": ("resource", lambda: resources_pb2.Resource(name="n", key="K", owner="bob")),
}


def _of(job: str) -> packets_pb2.PacketJob:
    part = packets_pb2.PacketJob(count=1)
    part.job.name = job
    return part


@pytest.mark.parametrize("what", FOREIGN_OBJECTS)
async def test_an_object_with_something_foreign_inside_is_refused(owners: Owners, what: str) -> None:
    kind, make = FOREIGN_OBJECTS[what]
    service = f"{kind.capitalize()}s"
    await owners.is_refused(f"{service}.Create", make())
    wrapped: Any = {kind: make()}
    await owners.is_refused("Cluster.Apply", cluster_pb2.ApplyRequest(objects=[cluster_pb2.Object(**wrapped)]))
    changed: Any = make()
    changed.name = {"packet": ADA.packet().name, "job": ADA.job().name, "resource": ADA.resource().name}[kind]
    await owners.is_refused(f"{service}.Update", changed)


async def test_an_order_under_way_cannot_be_given_a_foreign_resource(owners: Owners) -> None:
    for order in (ADA.waiting, BOB.waiting):
        names = orders_pb2.ResourceNames(names=[BOB.resource().name])
        await owners.is_refused("Orders.Update", orders_pb2.UpdateOrderRequest(id=order, resources=names))


async def test_a_packet_whose_job_went_to_another_owner_can_no_longer_be_used(owners: Owners) -> None:
    api = owners.plane.api
    stored = codec.decode((await api.store.get(keys.config("jobs", ADA.job().name))).value, Job)  # type: ignore[union-attr]
    root = await owners.plane.token("root", "admin")
    moved = await owners.plane.ask("Jobs.Update", ADA.job(owner="bob"), root)
    assert (moved.code, stored.owner) == (Code.OK, "ada")
    await api.cache.reached(moved.messages[0].revision, 10)
    await owners.is_refused("Orders.Submit", with_packet(ADA.packet().name), Code.NOT_FOUND)


async def test_the_name_of_a_foreign_object_is_taken_and_nothing_more(owners: Owners) -> None:
    for kind, message in (("job", BOB.job(id="")), ("packet", BOB.packet(id="")), ("resource", BOB.resource(id=""))):
        created = ADA.packet(id="") if kind == "packet" else message
        created.name = message.name
        told = await owners.is_refused(f"{kind.capitalize()}s.Create", created, Code.ALREADY_EXISTS)
        wrapped: Any = {kind: created}
        file = cluster_pb2.ApplyRequest(objects=[cluster_pb2.Object(**wrapped)])
        applied = await owners.is_refused("Cluster.Apply", file, Code.ALREADY_EXISTS)
        assert told.details.endswith("exists already")
        assert applied.details.endswith("exists already")


async def test_owner_and_creator_are_those_who_were_authenticated(owners: Owners) -> None:
    submitted = (await owners.asks("Orders.Submit", ADA.order(creator="bob"))).messages[0].item
    created = (await owners.asks("Jobs.Create", ADA.job(name="n", id="", creator="bob"))).messages[0].item
    file = cluster_pb2.ApplyRequest(
        objects=[
            cluster_pb2.Object(resource=ADA.resource(name="n", id="", creator="bob")),
            cluster_pb2.Object(order=ADA.order(mint.make(), creator="bob")),
        ]
    )
    applied = (await owners.asks("Cluster.Apply", file)).messages[0].items
    store = owners.plane.api.store
    order = codec.decode((await store.get(keys.order(applied[1].id))).value, Order)  # type: ignore[union-attr]
    assert {(item.owner, item.creator) for item in (submitted, created, order)} == {("ada", "ada")}


async def test_an_update_cannot_change_the_owner(owners: Owners) -> None:
    for method, message in (("Jobs", ADA.job), ("Packets", ADA.packet), ("Resources", ADA.resource)):
        await owners.is_refused(f"{method}.Update", message(owner="bob"), Code.PERMISSION_DENIED)
    updated = (await owners.asks("Jobs.Update", ADA.job(creator="bob", region="eu"))).messages[0].item
    assert (updated.owner, updated.creator, updated.region) == ("ada", "ada", "eu")


async def test_an_administrator_may_name_another_owner(owners: Owners) -> None:
    root = await owners.plane.token("root", "admin")
    answer = await owners.plane.ask("Orders.Submit", ADA.order(owner="bob", creator="bob"), root)
    assert (answer.messages[0].item.owner, answer.messages[0].item.creator) == ("bob", "bob")
    own = await owners.plane.ask("Orders.Submit", ADA.order(), root)
    assert (own.messages[0].item.owner, own.messages[0].item.creator) == ("root", "root")


async def test_a_repeat_by_another_subject_is_refused_and_told_nothing(owners: Owners) -> None:
    """Whether the bytes are the same or not, the answer is the same."""
    identity = mint.make()
    theirs = orders_pb2.Order(id=identity, labels={"team": "x"})
    theirs.packet.object.jobs.add(count=1).job.object.command.append("true")
    first = await owners.plane.ask("Orders.Submit", theirs, owners.bob)
    assert first.code is Code.OK
    again = await owners.plane.ask("Orders.Submit", theirs, owners.bob)
    assert again.messages[0].repeated
    other = orders_pb2.Order()
    other.CopyFrom(theirs)
    other.labels["team"] = "y"
    answers = [await owners.is_refused("Orders.Submit", order, Code.ALREADY_EXISTS) for order in (theirs, other)]
    assert answers[0].details == answers[1].details
    assert answers[0].messages == answers[1].messages == []
    batch = (await owners.asks("Orders.SubmitBatch", orders_pb2.SubmitBatchRequest(orders=[theirs, other]))).messages[0]
    assert [result.failure.code for result in batch.results] == ["AlreadyExists", "AlreadyExists"]
    assert len({result.failure.message for result in batch.results}) == 1
    file = cluster_pb2.ApplyRequest(objects=[cluster_pb2.Object(order=theirs)])
    await owners.is_refused("Cluster.Apply", file, Code.ALREADY_EXISTS)


async def test_a_repeat_with_other_rights_of_the_same_subject_is_told_nothing(owners: Owners) -> None:
    """A token for one owner's orders made the order; another token of the same subject may not see that owner."""
    bounded = await owners.plane.token("ada", "submitter", owner="team")
    order = ADA.order(mint.make())
    made = await owners.plane.ask("Orders.Submit", order, bounded)
    assert made.messages[0].item.owner == "team"
    await owners.is_refused("Orders.Submit", order, Code.ALREADY_EXISTS)


async def test_the_page_tokens_of_one_subject_give_another_nothing_foreign(owners: Owners) -> None:
    for service in ("Jobs", "Packets", "Resources", "Orders", "Fulfilments"):
        page = (await owners.plane.ask(f"{service}.List", common_pb2.ListRequest(limit=1), owners.bob)).messages[0]
        later = await owners.asks(f"{service}.List", common_pb2.ListRequest(page_token=page.next_page_token))
        assert later.code is Code.OK
        assert not any(text in later.text for text in (BOB.mark, *BOB.identities)), later


async def test_deleting_an_object_does_not_name_the_foreign_object_that_needs_it(owners: Owners) -> None:
    await owners.plane.bind("library", "viewer", subject="bob", owner="ada")
    used = packets_pb2.Packet(name=f"{BOB.mark}-borrows", jobs=[_of("ada-lent")], resources=["ada-lent"])
    assert (await owners.asks("Jobs.Create", jobs_pb2.Job(name="ada-lent", command=["true"]))).code is Code.OK
    assert (await owners.asks("Resources.Create", resources_pb2.Resource(name="ada-lent", key="K"))).code is Code.OK
    made = await owners.plane.ask("Packets.Create", used, owners.bob)
    assert made.code is Code.OK, made
    await owners.plane.api.cache.reached(made.messages[0].revision, 10)
    for service in ("Jobs", "Resources"):
        refused = await owners.is_refused(
            f"{service}.Delete", common_pb2.DeleteRequest(name="ada-lent"), Code.FAILED_PRECONDITION
        )
        assert "a packet of another owner needs 'ada-lent'" in refused.details


async def test_a_viewer_of_another_owner_may_use_the_objects_and_not_change_them(owners: Owners) -> None:
    await owners.plane.bind("library", "viewer", subject="ada", owner="bob")
    assert (await owners.asks("Orders.Submit", with_packet(BOB.packet().name))).code is Code.OK
    request = orders_pb2.OrderRequest(id=BOB.waiting)
    for method in ("Cancel", "Pause", "Resume"):
        assert (await owners.asks(f"Orders.{method}", request)).code is Code.PERMISSION_DENIED
    for service, name in (("Jobs", BOB.job().name), ("Packets", BOB.packet().name), ("Orders", BOB.finished)):
        answer = await owners.asks(f"{service}.Delete", common_pb2.DeleteRequest(name=name))
        assert answer.code is Code.PERMISSION_DENIED
    assert (await owners.asks("Jobs.Update", BOB.job(owner="ada"))).code is Code.PERMISSION_DENIED
    assert (await owners.asks("Jobs.Update", BOB.job(region="eu"))).code is Code.PERMISSION_DENIED


async def test_an_explanation_under_contention_shows_that_others_go_first_and_nothing_of_them(owners: Owners) -> None:
    """Bob's work fills the target and waits in front of ada's."""
    api = owners.plane.api
    for cpu, priority in ((600, 90), (500, 80), (999, 70)):
        assert (
            await owners.plane.ask("Orders.Submit", BOB.order(cpu=cpu, priority=priority), owners.bob)
        ).code is Code.OK
    mine = mint.make()
    sent = await owners.asks("Orders.Submit", ADA.order(mine, cpu=999.5, priority=10))
    await api.cache.reached(sent.messages[0].revision, 10)
    for answer in (
        await owners.asks("Orders.Explain", orders_pb2.ExplainRequest(id=mine)),
        await owners.asks("Orders.Get", common_pb2.GetRequest(name=mine)),
        await owners.asks("Orders.Plan", orders_pb2.PlanRequest(order=ADA.order(cpu=999.5, preempts=True))),
    ):
        assert answer.code is Code.OK
        assert not any(text in answer.text for text in (BOB.mark, *BOB.identities, "bob")), answer
    whole = await owners.plane.ask(
        "Orders.Explain", orders_pb2.ExplainRequest(id=mine), await owners.plane.token("vera", "viewer")
    )
    assert whole.messages[0].ahead_total > 2
    assert BOB.running in whole.text
    seen = (await owners.asks("Orders.Explain", orders_pb2.ExplainRequest(id=mine))).messages[0]
    assert {ahead.order for ahead in seen.ahead} <= set(ADA.orders)
    assert "other work" in str(seen) or "other orders" in str(seen)
    assert TARGET in str(seen)
