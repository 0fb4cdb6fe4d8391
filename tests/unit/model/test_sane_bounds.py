"""Every field of what is stored has bounds, no integer is wider than its field on the wire, and admission agrees."""

from __future__ import annotations

import types
import typing
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest
from google.protobuf.descriptor import FieldDescriptor

from controlplane.apiserver.admission import fields, named_admission, order_admission, settings_admission
from controlplane.apiserver.admission.resolve import resolve
from controlplane.cache.reflector import Cache
from controlplane.model import times
from controlplane.model.bounds import is_name
from controlplane.model.errors import Broken, Invalid, LimitExceeded
from controlplane.model.job import Job
from controlplane.model.leadership import Candidate, Term
from controlplane.model.order import OrderRequest, Resolved
from controlplane.model.packet import Packet, PacketJob
from controlplane.model.rule import Effect, Rule
from controlplane.model.schedule import Schedule
from controlplane.model.settings import Quota, Settings
from controlplane.model.target import Live, Target
from controlplane.replica_election import ElectionView
from controlplane.store import codec, keys
from controlplane.store.transaction import Value
from controlplane.store.watch import Change
from controlplane.wire import payload
from controlplane.wire.v1 import (
    cluster_pb2,
    cycles_pb2,
    events_pb2,
    fulfilments_pb2,
    jobs_pb2,
    orders_pb2,
    packets_pb2,
    rules_pb2,
    scalepolicies_pb2,
    targets_pb2,
)
from tests import poison
from tests.builders import NOW
from tests.picture import Picture
from tests.unit.apiserver.admission.known import Known

STORED: set[type[msgspec.Struct]] = {
    *(tree.struct for tree in poison.TREES), *(single.struct for single in keys.SINGLES), Live, Resolved
}  # fmt: skip
# Each stored struct that is shown, by the message that shows it.
SHOWN = {
    "Job": jobs_pb2.Job, "Packet": packets_pb2.Packet, "Target": targets_pb2.Target, "Rule": rules_pb2.Rule,
    "ScalePolicy": scalepolicies_pb2.ScalePolicy, "Order": orders_pb2.Order, "OrderStatus": orders_pb2.OrderStatus,
    "Resolved": orders_pb2.Resolved, "Fulfilment": fulfilments_pb2.Fulfilment, "Observed": fulfilments_pb2.Observed,
    "Settings": cluster_pb2.Settings, "Totals": cluster_pb2.Totals, "Term": cluster_pb2.Term,
    "Candidate": cluster_pb2.Replica, "Cycle": cycles_pb2.Cycle, "Event": events_pb2.Event,
    "Live": targets_pb2.Live, "TargetStatus": targets_pb2.TargetStatus, "Ended": None,
}  # fmt: skip
_WIDTH = {FieldDescriptor.TYPE_INT32: 31, FieldDescriptor.TYPE_INT64: 63}


def structs(kind: Any, seen: set[Any] | None = None) -> Iterator[type[msgspec.Struct]]:
    seen = set() if seen is None else seen
    if kind in seen:
        return
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        seen.add(kind)
        yield kind
        for hint in typing.get_type_hints(kind).values():
            yield from structs(hint, seen)
    for part in typing.get_args(kind):
        yield from structs(part, seen)


def unbounded(hint: Any, metas: tuple[msgspec.Meta, ...] = ()) -> Iterator[str]:
    origin, parts = typing.get_origin(hint), typing.get_args(hint)
    if origin is typing.Annotated:
        yield from unbounded(parts[0], tuple(part for part in parts[1:] if isinstance(part, msgspec.Meta)))
    elif origin in (types.UnionType, typing.Union):
        for part in parts:
            yield from unbounded(part, metas)
    elif any(meta.extra for meta in metas):
        return
    elif hint is str and not any(meta.max_length is not None or meta.pattern is not None for meta in metas):
        yield "a text without a greatest length"
    elif hint in (int, float):
        low = any(meta.ge is not None or meta.gt is not None for meta in metas)
        high = any(meta.le is not None or meta.lt is not None for meta in metas)
        if not (low and high):
            yield "a number without a range"
    elif origin in (tuple, dict):
        if not any(meta.max_length is not None for meta in metas):
            yield "a list or map without a greatest length"
        for part in parts:
            if part is not Ellipsis:
                yield from unbounded(part)


@pytest.mark.parametrize("kind", sorted({inner for kind in STORED for inner in structs(kind)}, key=str))
def test_every_field_of_what_is_stored_has_bounds(kind: type[msgspec.Struct]) -> None:
    hints = typing.get_type_hints(kind, include_extras=True)
    assert {name: found for name, hint in hints.items() if (found := list(unbounded(hint)))} == {}


def numbers(hint: Any, metas: tuple[Any, ...] = ()) -> Iterator[tuple[float, float]]:
    origin, parts = typing.get_origin(hint), typing.get_args(hint)
    if origin is typing.Annotated:
        yield from numbers(parts[0], parts[1:])
    elif hint is int and metas and metas[0].extra is None:
        (meta, *_) = metas
        yield (meta.ge if meta.ge is not None else meta.gt), (meta.le if meta.le is not None else meta.lt)
    else:
        for part in parts:
            yield from numbers(part)


@pytest.mark.parametrize("name", [name for name, message in SHOWN.items() if message is not None])
def test_no_integer_is_wider_than_its_field_on_the_wire(name: str) -> None:
    pairs = [(next(kind for kind in STORED if kind.__name__ == name), SHOWN[name].DESCRIPTOR)]  # type: ignore[union-attr]
    for struct, descriptor in pairs:
        hints = typing.get_type_hints(struct, include_extras=True)
        for field in msgspec.structs.fields(struct):
            wire = descriptor.fields_by_name.get(field.encode_name)
            if wire is None:
                continue
            width = _WIDTH.get(wire.type, 0)
            for least, most in numbers(hints[field.name]) if width else ():
                assert -(2**width) <= least <= most < 2**width, f"{name}.{field.name}"
            inner = [kind for kind in structs(hints[field.name]) if kind is not struct]
            if wire.message_type is not None and inner and (inner[0], wire.message_type) not in pairs:
                pairs.append((inner[0], wire.message_type))


def refused(**said: Any) -> str:
    with pytest.raises((Invalid, LimitExceeded)) as refusal:
        order_admission.check(OrderRequest(packet=Packet(), **said), Known())
    return refusal.value.field


@pytest.mark.parametrize(
    "moment", ["0001-01-01T00:00:00Z", "9999-12-31T23:59:59Z", "2200-01-01T00:00:00Z", "x" * 10**6]
)
def test_a_time_outside_of_the_years_1970_to_2199_is_refused(moment: str) -> None:
    assert refused(not_before=moment) == "not_before"
    assert refused(schedule=Schedule(cron="* * * * *", until=moment)) == "schedule.until"


@pytest.mark.parametrize("moment", ["1970-01-01T00:00:00Z", "2199-12-31T23:59:59.999Z", "2026-02-28T12:00:00+14:00"])
def test_a_time_of_the_years_1970_to_2199_is_taken(moment: str) -> None:
    order_admission.check(OrderRequest(packet=Packet(), not_before=moment), Known())
    assert times.is_sane(moment)


@pytest.mark.parametrize("amount", [1e-310, 1e-7, 10**19, 1e300, -1, float("inf"), float("nan")])
def test_an_amount_too_small_or_large_to_count_with_is_refused(amount: float) -> None:
    packet = Packet(jobs=(PacketJob(job=Job(requests={"cpu": amount})),))
    with pytest.raises(Invalid) as refusal:
        resolve(packet, Known())
    assert refusal.value.field == "packet.jobs[0].job.requests.cpu"


@pytest.mark.parametrize(
    ("item", "field"),
    [
        (Target(name="t", max_fulfilments=10**12), "max_fulfilments"),
        (Target(name="t", default_time_limit=1e17), "default_time_limit"),
        (Target(name=".."), "name"),
        (Rule(name="r", when="true", then=Effect(limit=2**40)), "then.limit"),
        (Job(name="j", max_chunks=2**40), "max_chunks"),
        (Job(name="j", time_limit=1e17), "time_limit"),
    ],
)
def test_what_no_reader_would_take_is_refused_by_its_field(item: Any, field: str) -> None:
    with pytest.raises(Invalid) as refusal:
        named_admission.admit(item, Known())
    assert refusal.value.field == field


@pytest.mark.parametrize("said", [{"clean_up": 1e300}, {"cycle_budget": 0}, {"quotas": {"a": Quota(live_tasks=-1)}}])
def test_settings_that_no_reader_would_take_are_refused(said: dict[str, Any]) -> None:
    with pytest.raises(Invalid):
        settings_admission.admit(Settings(**said))


def test_the_refusal_of_a_value_names_field_and_rule() -> None:
    with pytest.raises(Invalid) as refusal:
        codec.check(Target(name="t", max_fulfilments=0), "objects[3]")
    assert (refusal.value.field, refusal.value.rule) == ("objects[3].max_fulfilments", "must be `int` >= 1")


@pytest.mark.parametrize("text", ["", ".", "..", "a/b", "A", "x" * 64, "a\n", "../../../elsewhere"])
def test_what_could_lead_out_of_a_folder_is_no_name(text: str) -> None:
    assert not is_name(text)
    with pytest.raises(Invalid):
        fields.name(text, "name")
    with pytest.raises(Broken):
        codec.decode(msgspec.json.encode({"kind": "Target", "name": text}), Target)


def test_a_report_that_is_not_sane_still_says_whom_to_answer() -> None:
    task = b'{"job":"j","index":0,"attempt":1,"phase":"Failed","exit_code":%d}'
    raw = b'{"kind":"Observed","id":"a","target":"t","session":"s","report":3,"phase":"Failed","tasks":[' + task + b"]}"
    with pytest.raises(Invalid, match="exit_code"):
        payload.observed(raw % 2**40)
    receipt = payload.receipt(raw % 2**40)
    assert receipt is not None
    assert (receipt.id, receipt.report) == ("a", 3)
    assert payload.receipt(b"[]") is None


def seen(*values: Value) -> ElectionView:
    picture = Picture()
    view = ElectionView(typing.cast(Cache, picture))
    picture.tell([Change(value.key, 50, value) for value in values])
    return view


def test_a_candidate_without_the_lease_of_its_key_does_not_stand() -> None:
    raw = codec.encode(Candidate(id="r", incarnation="r", grpc="", http="", pulse="", pid=1, version=""))
    view = seen(
        Value(keys.candidate(0xAB), raw, 9, 9, 0xAB),
        Value(f"{keys.CANDIDATES.prefix}x", raw, 3, 3, 0),
        Value(keys.candidate(0xCD), raw, 4, 4, 0xEF),
    )
    assert [one.create_revision for one in view.candidates()] == [9]


@pytest.mark.parametrize("epoch", [99999999999999999999, 2**63 - 1, 40])
def test_a_term_of_an_epoch_that_etcd_had_not_reached_is_no_term(epoch: int) -> None:
    real, wrong = (codec.encode(Term(epoch=number, id="r", since=NOW)) for number in (7, epoch))
    view = seen(Value(keys.term(7), real, 8, 8, 0), Value(f"{keys.ROOT}terms/{epoch:020d}", wrong, 12, 12, 0))
    term = view.last_term()
    assert term is not None
    assert term.epoch == 7
