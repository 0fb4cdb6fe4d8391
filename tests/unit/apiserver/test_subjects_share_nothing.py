"""Memories that are keyed by the content of requests: an entry belongs to one subject."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from controlplane.aio.clock import SystemClock
from controlplane.apiserver.admission.admit_caught_up import SnapshotCatalogue
from controlplane.apiserver.admission.admit_order import OrderAdmission
from controlplane.apiserver.api_ports import Reads, Writes
from controlplane.apiserver.edge.sent_objects import order_request
from controlplane.model.access import Grant, Role, Subject
from controlplane.model.job import Job
from controlplane.model.order import Order, OrderRequest
from controlplane.model.packet import Packet, PacketJob
from controlplane.store import keys
from controlplane.wire.v1 import orders_pb2
from tests.builders import an_identity
from tests.picture import Told

SUBMITS = (Grant(Role.SUBMITTER),)
ADA, BOB = Subject(name="ada", grants=SUBMITS), Subject(name="bob", grants=SUBMITS)
NOTHING: Any = None
NAMED = OrderRequest(packet="render")
INLINE = OrderRequest(packet=Packet(jobs=(PacketJob(job=Job(command=("true",))),)))


def sent() -> orders_pb2.Order:
    order = orders_pb2.Order(id=an_identity())
    order.packet.object.jobs.add(count=1).job.object.command.append("true")
    return order


def test_a_request_that_one_subject_sent_is_read_again_for_another() -> None:
    first = order_request(ADA, sent())
    assert order_request(ADA, sent()).packet is first.packet
    other = order_request(BOB, sent())
    assert other.packet == first.packet
    assert other.packet is not first.packet


def test_what_one_subject_was_admitted_with_is_worked_out_again_for_another() -> None:
    told = Told()
    told.write({keys.config("packets", "render"): Packet(name="render", jobs=(PacketJob(job=Job(command=("true",))),))})
    admission = OrderAdmission(
        Reads(NOTHING, told.picture, told.ledgers), Writes(NOTHING, SystemClock(), NOTHING, NOTHING)
    )

    def admitted(subject: Subject, request: OrderRequest) -> Order:
        known = SnapshotCatalogue(told.picture.snapshot)
        return admission.prepare(subject, replace(request, id=an_identity()), known).order

    for request in (NAMED, INLINE):
        first = admitted(ADA, request)
        assert admitted(ADA, request).resolved is first.resolved
        # Another request of the same packet shares its resolution, within a subject.
        assert admitted(ADA, replace(request, priority=7)).resolved is first.resolved
        for other in (admitted(BOB, request), admitted(BOB, replace(request, priority=7))):
            assert bytes(other.resolved) == bytes(first.resolved)
            assert other.resolved is not first.resolved
            assert other.digest != first.digest
