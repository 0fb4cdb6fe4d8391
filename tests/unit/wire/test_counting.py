"""Counting on raw bytes: what would be too much in memory is refused before anything is built of it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from google.protobuf import descriptor_pool

from controlplane.apiserver.edge import request_limits
from controlplane.apiserver.edge.grpc_services import SERVICES
from controlplane.model.errors import Invalid, LimitExceeded
from controlplane.wire import counting
from controlplane.wire.v1 import cluster_pb2, common_pb2, joblets_pb2, orders_pb2, packets_pb2, targets_pb2

counter = counting.ElementCounter(request_limits.MAX_ELEMENTS)


def inputs() -> Iterator[Any]:
    for service in SERVICES:
        for method in descriptor_pool.Default().FindServiceByName(service).methods:
            yield method.input_type


def repeated_fields(descriptor: Any, seen: set[str]) -> Iterator[Any]:
    for field in descriptor.fields:
        if field.is_repeated:
            yield field
        if field.message_type is not None and field.message_type.full_name not in seen:
            seen.add(field.message_type.full_name)
            yield from repeated_fields(field.message_type, seen)


def test_every_list_that_a_request_can_hold_has_a_limit() -> None:
    seen: set[str] = set()
    fields = {field for descriptor in inputs() for field in repeated_fields(descriptor, seen)}
    names = {f"{field.containing_type.name}.{field.name}" for field in fields}
    assert names == set(request_limits.MAX_ELEMENTS)


@pytest.mark.parametrize("descriptor", {item.full_name: item for item in inputs()}.values(), ids=lambda d: d.name)
def test_one_element_more_than_the_limit_is_refused_and_the_limit_is_not(descriptor: Any) -> None:
    for field in descriptor.fields:
        if not field.is_repeated or field.message_type is None:
            continue
        most = request_limits.MAX_ELEMENTS[f"{descriptor.name}.{field.name}"]
        element = counting_tag(field) + b"\0"
        assert counter.check(element * most, descriptor) == most
        with pytest.raises(LimitExceeded) as refused:
            counter.check(element * (most + 1), descriptor)
        assert refused.value.field == field.name


def counting_tag(field: Any) -> bytes:
    tag, raw = field.number << 3 | 2, bytearray()
    while tag > 127:
        raw.append(tag & 127 | 128)
        tag >>= 7
    return bytes((*raw, tag))


def test_a_list_inside_names_its_place() -> None:
    order = orders_pb2.Order()
    for _ in range(3):
        order.packet.object.jobs.add()
    job = order.packet.object.jobs[2].job.object
    job.failure_policies.extend(common_pb2.FailurePolicy() for _ in range(65))
    with pytest.raises(LimitExceeded) as refused:
        counter.check(order.SerializeToString(), orders_pb2.Order.DESCRIPTOR)
    assert refused.value.field == "packet.jobs[2].job.failure_policies"
    assert str(refused.value) == "packet.jobs[2].job.failure_policies: must not hold more than 64 items"


def test_a_message_sent_in_parts_is_counted_as_the_whole_that_it_becomes() -> None:
    part = packets_pb2.Packet(jobs=[packets_pb2.PacketJob()] * 600)
    order = orders_pb2.Order()
    order.packet.object.CopyFrom(part)
    raw = order.SerializeToString()
    counter.check(raw, orders_pb2.Order.DESCRIPTOR)
    with pytest.raises(LimitExceeded, match=r"packet\.jobs"):
        counter.check(raw + raw, orders_pb2.Order.DESCRIPTOR)


def test_a_batch_counts_each_order_on_its_own() -> None:
    order = orders_pb2.Order()
    order.packet.object.jobs.extend(packets_pb2.PacketJob() for _ in range(600))
    batch = orders_pb2.SubmitBatchRequest(orders=[order, order])
    counter.check(batch.SerializeToString(), orders_pb2.SubmitBatchRequest.DESCRIPTOR)


def test_the_whole_request_is_bounded_however_its_lists_are_nested() -> None:
    batch = orders_pb2.SubmitBatchRequest()
    for _ in range(400):
        batch.orders.add().packet.object.jobs.extend(packets_pb2.PacketJob() for _ in range(1000))
    with pytest.raises(LimitExceeded, match="250000 elements"):
        counter.check(batch.SerializeToString(), orders_pb2.SubmitBatchRequest.DESCRIPTOR)


def test_numbers_are_counted_packed_and_one_by_one() -> None:
    match = common_pb2.FailureMatch.DESCRIPTOR
    codes = match.fields_by_name["exit_codes"].number
    counter.check(bytes((codes << 3 | 2, 64)) + b"\1" * 64, match)
    for raw in (bytes((codes << 3 | 2, 65)) + b"\1" * 65, bytes((codes << 3, 1)) * 65):
        with pytest.raises(LimitExceeded, match="exit_codes"):
            counter.check(raw, match)


def test_a_field_repeated_without_end_is_refused_though_only_its_last_value_counts() -> None:
    priority = orders_pb2.Order.DESCRIPTOR.fields_by_name["priority"].number
    with pytest.raises(LimitExceeded, match="so many fields"):
        counter.check(bytes((priority << 3, 1)) * 600_000, orders_pb2.Order.DESCRIPTOR)


def test_many_unknown_fields_are_refused_and_a_few_are_left_to_the_reader() -> None:
    unknown = b"\xf8\x7f\x01"
    counter.check(unknown * 100, targets_pb2.Target.DESCRIPTOR)
    with pytest.raises(Invalid):
        counter.check(unknown * 101, targets_pb2.Target.DESCRIPTOR)


@pytest.mark.parametrize(
    "raw",
    [
        b"\x0a", b"\x0a\x05abc", b"\xff" * 20, b"\x0b\x0c", b"\x0a\xff\xff\xff\xff\x0f", b"\x09\x00", b"\x0d\x00",
        b"\x80\x80\x80\x80\x80\x80\x01",
    ],
)  # fmt: skip
def test_bytes_that_are_no_message_are_called_so(raw: bytes) -> None:
    with pytest.raises(Invalid):
        counter.check(raw, orders_pb2.SubmitBatchRequest.DESCRIPTOR)


def test_a_tag_written_longer_than_needed_is_the_same_tag() -> None:
    with pytest.raises(LimitExceeded, match="orders"):
        counter.check(b"\x8a\x00\x00" * 1001, orders_pb2.SubmitBatchRequest.DESCRIPTOR)


def test_what_was_counted_is_what_protobuf_then_builds() -> None:
    apply = cluster_pb2.ApplyRequest()
    for index in range(100):
        target = apply.objects.add().target
        target.name = f"t{index}"
        target.labels["a"] = "b"
        target.windows.add(days=["mon", "tue"])
    raw = apply.SerializeToString()
    assert counter.check(raw, cluster_pb2.ApplyRequest.DESCRIPTOR) > 600
    assert len(cluster_pb2.ApplyRequest.FromString(raw).objects) == 100


def test_a_batch_of_a_joblet_has_few_fields_though_its_messages_repeat_them() -> None:
    descriptor = joblets_pb2.JobletBatch.DESCRIPTOR
    # 5,000 empty heartbeats in one message: the last of them stands, and only the bytes tell of the others.
    message = b"\x0a\x90\x4e" + b"\x12\x00" * 5000
    most = request_limits.most_fields(descriptor)
    assert counter.check(message, descriptor, most) == 5001
    with pytest.raises(LimitExceeded, match="so many fields"):
        counter.check(message * 7, descriptor, most)
