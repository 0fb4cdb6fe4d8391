"""Model and messages say the same, field for field, in both directions."""

from __future__ import annotations

import typing
from random import Random
from typing import Any

import msgspec
import pytest
from google.protobuf.message import Message

from controlplane.model.errors import Invalid
from controlplane.model.event import About, Event
from controlplane.model.explanation import Explanation, Plan
from controlplane.model.fulfilment import Fulfilment, Observed
from controlplane.model.job import Job
from controlplane.model.order import OrderRequest, Resolved
from controlplane.model.packet import Packet, PacketJob
from controlplane.model.resource import Resource
from controlplane.model.rule import Rule
from controlplane.model.scalepolicy import ScalePolicy
from controlplane.model.settings import Quota, Settings, Weights
from controlplane.model.target import Hardware, Target
from controlplane.model.totals import Processed, Rates, TargetTotals, Totals
from controlplane.wire import convert
from controlplane.wire.v1 import (
    cluster_pb2,
    events_pb2,
    explanations_pb2,
    fulfilments_pb2,
    jobs_pb2,
    orders_pb2,
    packets_pb2,
    resources_pb2,
    rules_pb2,
    scalepolicies_pb2,
    targets_pb2,
)

PAIRS: list[tuple[type[msgspec.Struct], type[Message]]] = [
    (Job, jobs_pb2.Job),
    (Packet, packets_pb2.Packet),
    (Resource, resources_pb2.Resource),
    (Target, targets_pb2.Target),
    (Rule, rules_pb2.Rule),
    (ScalePolicy, scalepolicies_pb2.ScalePolicy),
    (OrderRequest, orders_pb2.Order),
    (Resolved, orders_pb2.Resolved),
    (Fulfilment, fulfilments_pb2.Fulfilment),
    (Observed, fulfilments_pb2.Observed),
    (Settings, cluster_pb2.Settings),
    (Hardware, targets_pb2.Hardware),
    (About, events_pb2.About),
    (Processed, cluster_pb2.Processed),
    (Rates, cluster_pb2.Rates),
    (TargetTotals, cluster_pb2.TargetTotals),
    (Explanation, explanations_pb2.Explanation),
    (Plan, explanations_pb2.Plan),
]
IDS = [struct.__name__ for struct, _ in PAIRS]


def value(hint: Any, random: Random) -> Any:
    """Anything that the hint allows; no empty text and no zero, which on the wire are "not said"."""
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin is tuple:
        return tuple(value(arguments[0], random) for _ in range(random.randrange(3)))
    if origin is dict:
        return {random.choice("abcé"): value(arguments[1], random) for _ in range(random.randrange(3))}
    if arguments:
        if type(None) in arguments and random.random() < 0.3:
            return None
        return value(random.choice([kind for kind in arguments if kind is not type(None)]), random)
    if isinstance(hint, type) and issubclass(hint, msgspec.Struct):
        return a_struct(hint, random)
    makers: dict[Any, Any] = {
        str: lambda: random.choice("xé"),
        bool: lambda: random.random() < 0.5,
        int: lambda: random.randrange(1, 2**31),
        float: lambda: random.randrange(1000) + 0.5,
    }
    return makers[hint]()


def a_struct(struct: type[msgspec.Struct], random: Random) -> Any:
    hints = typing.get_type_hints(struct)
    return struct(**{field.name: value(hints[field.name], random) for field in msgspec.structs.fields(struct)})


@pytest.mark.parametrize(("struct", "message"), PAIRS, ids=IDS)
def test_every_field_of_a_struct_is_a_field_of_its_message(
    struct: type[msgspec.Struct], message: type[Message]
) -> None:
    fields = {field.encode_name for field in msgspec.structs.fields(struct)}
    assert fields - set(message.DESCRIPTOR.fields_by_name) == set()


@pytest.mark.parametrize(("struct", "message"), [(Event, events_pb2.Event), (Totals, cluster_pb2.Totals)])
def test_every_field_of_what_is_only_shown_is_stored(struct: type[msgspec.Struct], message: type[Message]) -> None:
    fields = {field.encode_name for field in msgspec.structs.fields(struct)}
    assert set(message.DESCRIPTOR.fields_by_name) - fields == set()


@pytest.mark.parametrize(("struct", "message"), PAIRS, ids=IDS)
def test_a_struct_survives_the_way_over_the_wire(struct: type[msgspec.Struct], message: type[Message]) -> None:
    for seed in range(50):
        made = a_struct(struct, Random(seed))
        sent = message.FromString(convert.to_wire(made, message).SerializeToString())
        assert convert.to_model(sent, struct) == made


def test_what_was_not_said_stays_unsaid_and_what_was_said_as_nothing_stays_said() -> None:
    silent = convert.to_model(jobs_pb2.Job(name="a"), Job)
    assert (silent.requests, silent.time_limit, silent.target_policy) == (None, None, None)
    empty = convert.to_model(convert.to_wire(Job(name="a", requests={}, time_limit=0), jobs_pb2.Job), Job)
    assert (empty.requests, empty.time_limit) == ({}, 0)


def test_whole_numbers_stay_whole() -> None:
    job = convert.to_model(convert.to_wire(Job(requests={"cpu": 2, "gpu": 0.5}), jobs_pb2.Job), Job)
    assert job.requests == {"cpu": 2, "gpu": 0.5}
    assert type(job.requests["cpu"]) is int


def test_what_the_wire_cannot_tell_from_not_said_gets_the_models_default() -> None:
    assert convert.to_model(fulfilments_pb2.Fulfilment(id="f"), Fulfilment).want == "run"


def test_settings_that_are_said_in_part_keep_the_other_defaults_also_deep_inside() -> None:
    said = cluster_pb2.Settings(weights=cluster_pb2.Weights(soft=0), placement="pack")
    said.quotas["ada"].quantities["cpu"] = 8
    found = convert.to_model(said, Settings)
    assert (found.weights, found.placement) == (Weights(soft=0), "pack")
    assert found.quotas == {"ada": Quota(quantities={"cpu": 8})}
    assert (found.reservations, found.failure_memory) == (Settings().reservations, Settings().failure_memory)


def test_a_job_goes_by_name_or_as_the_object_itself() -> None:
    packet = Packet(jobs=(PacketJob(job="by-name"), PacketJob(job=Job(name="itself"))))
    message = convert.to_wire(packet, packets_pb2.Packet)
    assert [job.job.WhichOneof("ref") for job in message.jobs] == ["name", "object"]


def test_a_field_that_this_version_does_not_know_is_refused_also_deep_inside() -> None:
    unknown = b"\xf2\xff\x01\x01x"  # field 4094, text
    with pytest.raises(Invalid):
        convert.to_model(jobs_pb2.Job.FromString(unknown), Job)
    packet = packets_pb2.Packet()
    packet.jobs.add().job.object.MergeFromString(unknown)
    with pytest.raises(Invalid):
        convert.to_model(packet, Packet)


def test_plain_objects_have_all_lists_and_maps_and_no_absent_optionals() -> None:
    plain = convert.to_plain(convert.to_wire(Job(name="a", requests={"cpu": 1}), jobs_pb2.Job))
    assert (plain["requests"], plain["command"], plain["env"]) == ({"cpu": 1}, [], {})
    assert "time_limit" not in plain
    assert msgspec.json.encode(plain)


def test_objects_that_must_always_look_alike_show_nulls() -> None:
    assert set(convert.to_plain(cluster_pb2.Leader()).values()) == {None}
    assert convert.to_plain(fulfilments_pb2.Fulfilment())["observed"] is None
    assert convert.to_plain(targets_pb2.Target())["live"] is None
