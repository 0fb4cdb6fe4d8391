"""From what a person wrote to structs: refusals name the path."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controlplane.model import manifest
from controlplane.model.errors import Invalid
from controlplane.model.job import Job
from controlplane.model.kinds import WRITTEN
from controlplane.model.order import OrderRequest
from controlplane.model.packet import Packet
from controlplane.model.rule import Effect, Rule
from controlplane.model.settings import Quota, Settings, Weights
from controlplane.model.target import Target


def test_quantities_and_durations_become_numbers() -> None:
    document = {"kind": "Job", "name": "render", "requests": {"cpu": "500m", "memory": "4Gi"}, "time_limit": "30m"}
    job = manifest.read(document)
    assert isinstance(job, Job)
    assert job.requests == {"cpu": 0.5, "memory": 4 * 2**30}
    assert job.time_limit == 1800


def test_settings_hold_weights_and_quotas_by_owner() -> None:
    quotas = {"*": {"orders": 10}, "ada": {"live_tasks": 5, "quantities": {"memory": "4Gi"}}}
    settings = manifest.read(
        {"kind": "Settings", "weights": {"soft": 0}, "quotas": quotas, "placement": "pack", "failure_memory": "10m"}
    )
    assert settings == Settings(
        weights=Weights(soft=0),
        quotas={"*": Quota(orders=10), "ada": Quota(live_tasks=5, quantities={"memory": 4 * 2**30})},
        placement="pack",
        failure_memory=600,
    )


def test_a_packet_takes_jobs_by_name_and_as_objects() -> None:
    packet = manifest.read({"kind": "Packet", "jobs": [{"job": "a", "count": 2}, {"job": {"command": ["x"]}}]})
    assert isinstance(packet, Packet)
    assert packet.jobs[0].job == "a"
    assert isinstance(packet.jobs[1].job, Job)


def test_names_that_python_reserves_are_read_as_people_write_them() -> None:
    job = manifest.read({"kind": "Job", "class": "render"})
    target = manifest.read({"kind": "Target", "windows": [{"days": ["mon"], "from": "08:00", "to": "18:00"}]})
    assert isinstance(job, Job)
    assert job.class_ == "render"
    assert isinstance(target, Target)
    assert target.windows[0].from_ == "08:00"


@pytest.mark.parametrize(("written", "read"), [(-50, -50), ("-50", -50), (-0.5, -0.5), ("-500m", -0.5), (50, 50)])
def test_a_rule_may_prefer_less_than_nothing(written: object, read: float) -> None:
    rule = manifest.read({"kind": "Rule", "when": "true", "then": {"prefer": written}})
    assert isinstance(rule, Rule)
    assert rule.then == Effect(prefer=read)


def test_a_label_or_variable_may_be_called_like_a_duration() -> None:
    job = manifest.read({"kind": "Job", "labels": {"deadline": "soon"}, "env": {"idle": "5s", "x.backoff": "no"}})
    assert isinstance(job, Job)
    assert job.labels == {"deadline": "soon"}
    assert job.env == {"idle": "5s", "x.backoff": "no"}


@pytest.mark.parametrize(
    ("document", "field"),
    [
        (None, "document"),
        ([], "document"),
        ({}, "kind"),
        ({"kind": "Pod"}, "kind"),
        ({"kind": ["Job"]}, "kind"),
        ({"kind": "Job", "nmae": "x"}, "nmae"),
        ({"kind": "Job", "created": "2026-01-01T00:00:00Z"}, "created"),
        ({"kind": "Job", 1: "x"}, "1"),
        ({"kind": "Job", "name": 7}, "name"),
        ({"kind": "Job", "exclusive": "yes"}, "exclusive"),
        ({"kind": "Job", "command": "render --all"}, "command"),
        ({"kind": "Job", "command": ["render", 7]}, "command[1]"),
        ({"kind": "Job", "requests": {"cpu": "lots"}}, "requests.cpu"),
        ({"kind": "Job", "requests": {1: 1}}, "requests.1"),
        ({"kind": "Job", "env": {"A": 1}}, "env.A"),
        ({"kind": "Job", "time_limit": "soon"}, "time_limit"),
        ({"kind": "Job", "constraints": {"hard": [{"lable": "x"}]}}, "constraints.hard[0].lable"),
        ({"kind": "Packet", "jobs": [{"job": {"kind": "Packet"}}]}, "jobs[0].job.kind"),
        ({"kind": "Packet", "jobs": [{"job": 7}]}, "jobs[0].job"),
        ({"kind": "Order", "priority": "high"}, "priority"),
        ({"kind": "Order", "priority": True}, "priority"),
        ({"kind": "Order", "packet": {"jobs": [{"count": 1.5}]}}, "packet.jobs[0].count"),
    ],
)
def test_a_refusal_names_the_path_of_the_field(document: object, field: str) -> None:
    with pytest.raises(Invalid) as refusal:
        manifest.read(document)
    assert refusal.value.field == field


def test_an_empty_field_is_a_field_that_was_not_written() -> None:
    order = manifest.read({"kind": "Order", "packet": "p", "priority": None})
    assert isinstance(order, OrderRequest)
    assert order.priority is None


PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=10,
)


@given(st.sampled_from(sorted(WRITTEN)), st.data())
def test_whatever_stands_in_a_field_is_read_or_refused_and_nothing_else(kind: str, data: st.DataObject) -> None:
    fields = WRITTEN[kind].__struct_encode_fields__
    document: dict[str, Any] = {"kind": kind, **data.draw(st.dictionaries(st.sampled_from(fields), PLAIN, max_size=3))}
    with suppress(Invalid):
        assert isinstance(manifest.read(document), WRITTEN[kind])
