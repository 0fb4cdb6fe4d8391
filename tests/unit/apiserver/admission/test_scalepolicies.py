"""What a scale policy may say, and what it gets where it says nothing."""

from __future__ import annotations

import math
from typing import Any

import pytest
from msgspec.structs import replace

from controlplane.apiserver.admission import named_admission
from controlplane.apiserver.admission.catalogue import Catalogue
from controlplane.model.errors import Refused
from controlplane.model.manifest import read
from controlplane.model.scalepolicy import ClusterApi, ScalePolicy, TargetSize, TargetTemplate, WorkSelector

KNOWN: Any = Catalogue
SMALL = TargetTemplate(capacity={"cpu": 2})
GOOD = ScalePolicy(name="farm", provider="local", metric="queue", threshold=10, max=5, template=SMALL)
POOL = ClusterApi(template="pool", machine={"cpu": 4, "memory": 8})
HOOK = replace(GOOD, provider="webhook", url="https://clusters.example/hook")


def sized(*sizes: dict[str, float]) -> dict[str, Any]:
    return {"template": TargetTemplate(), "sizes": tuple(TargetSize(capacity=size) for size in sizes)}


def test_what_is_not_said_is_filled_in() -> None:
    admitted = named_admission.admit(GOOD, KNOWN)
    assert (admitted.min, admitted.step, admitted.cool_down, admitted.idle) == (0, 1, 30, 300)
    assert admitted.template == TargetTemplate(driver="process", capacity={"cpu": 2})
    assert named_admission.admit(admitted, KNOWN) == admitted


def test_machines_are_counted_by_what_is_scarcest() -> None:
    admitted = named_admission.admit(replace(GOOD, provider="cluster-api", cluster_api=POOL), KNOWN)
    assert admitted.template is not None
    assert admitted.template.driver == "kubernetes"
    assert admitted.cluster_api == replace(POOL, namespace="default")
    counted = [POOL.machines(room) for room in ({"cpu": 0.5}, {"cpu": 4}, {"cpu": 4.1}, {"cpu": 4, "memory": 17})]
    assert counted == [1, 1, 2, 3]


@pytest.mark.parametrize(
    "change",
    [
        {"min": 5, "max": 5, "step": 40, "cool_down": 0, "idle": 0},
        {"metric": "wait", "threshold": 0.5},
        {"metric": "utilisation", "threshold": 80},
        {"serves": WorkSelector(class_="render", labels={"team": "film"}, region="eu")},
        {"serves": WorkSelector(region="eu"), "template": replace(SMALL, region="eu")},
        {"provider": "webhook", "url": "http://127.0.0.1:8080/a?b=c", "template": replace(SMALL, driver="kubernetes")},
        {"provider": "webhook", "url": "http://[::1]:8080/", "template": replace(SMALL, driver="kubernetes")},
        {
            "provider": "webhook",
            "url": "https://xn--80ak6aa92e.Example.com./",
            "template": replace(SMALL, driver="kubernetes"),
        },
        sized({"cpu": 2, "memory": 1}, {"cpu": 2, "memory": 2}, {"cpu": 4, "memory": 2}),
    ],
)
def test_what_keeps_the_rules_is_admitted(change: dict[str, Any]) -> None:
    named_admission.admit(replace(GOOD, **change), KNOWN)


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"name": "x" * 57}, "name"),
        ({"provider": ""}, "provider"),
        ({"provider": "cloud"}, "provider"),
        ({"provider": "cluster-api"}, "cluster_api"),
        ({"cluster_api": POOL}, "cluster_api"),
        ({"provider": "cluster-api", "cluster_api": POOL, "name": "-farm"}, "name"),
        ({"provider": "cluster-api", "cluster_api": replace(POOL, namespace="A b")}, "cluster_api.namespace"),
        ({"provider": "cluster-api", "cluster_api": replace(POOL, template="")}, "cluster_api.template"),
        ({"provider": "cluster-api", "cluster_api": replace(POOL, template="a/b")}, "cluster_api.template"),
        ({"provider": "cluster-api", "cluster_api": replace(POOL, machine={})}, "cluster_api.machine"),
        ({"provider": "cluster-api", "cluster_api": replace(POOL, machine={"cpu": 0})}, "cluster_api.machine.cpu"),
        ({"provider": "cluster-api", "cluster_api": replace(POOL, machine={"memory": 1})}, "cluster_api.machine"),
        ({"provider": "cluster-api", "cluster_api": replace(POOL, machine={"cpu": 0.001})}, "cluster_api"),
        ({"metric": ""}, "metric"),
        ({"metric": "moon"}, "metric"),
        ({"threshold": None}, "threshold"),
        ({"threshold": -1}, "threshold"),
        ({"threshold": math.inf}, "threshold"),
        ({"metric": "utilisation", "threshold": 100}, "threshold"),
        ({"metric": "utilisation", "threshold": 0}, "threshold"),
        ({"max": None}, "max"),
        ({"max": 0}, "max"),
        ({"max": 1001}, "max"),
        ({"min": -1}, "min"),
        ({"min": 6}, "max"),
        ({"step": 0}, "step"),
        ({"step": 41}, "step"),
        ({"cool_down": -1}, "cool_down"),
        ({"idle": -1}, "idle"),
        ({"idle": math.nan}, "idle"),
        ({"url": "http://here/"}, "url"),
        ({"provider": "webhook"}, "url"),
        ({"provider": "webhook", "url": "ftp://here/"}, "url"),
        ({"provider": "webhook", "url": "http://"}, "url"),
        ({"provider": "webhook", "url": "http://here:nine/"}, "url"),
        ({"provider": "webhook", "url": "http://scaler..example.com/"}, "url"),
        ({"provider": "webhook", "url": "http://.example.com/"}, "url"),
        ({"provider": "webhook", "url": "http://example.com../"}, "url"),
        ({"provider": "webhook", "url": f"http://{'a' * 64}.example.com/"}, "url"),
        ({"provider": "webhook", "url": f"http://{'a.' * 130}com/"}, "url"),
        ({"provider": "webhook", "url": "http://-here/"}, "url"),
        ({"provider": "webhook", "url": "http://he re/"}, "url"),
        ({"provider": "webhook", "url": "http://zażółć.example/"}, "url"),
        ({"provider": "webhook", "url": "http://[::1/"}, "url"),
        ({"provider": "webhook", "url": "http://me:secret@here/"}, "url"),
        ({"template": None}, "template.capacity"),
        ({"template": TargetTemplate(capacity={"cpu": 0})}, "template.capacity.cpu"),
        ({"template": TargetTemplate(capacity={"cpu": -2})}, "template.capacity.cpu"),
        ({"template": replace(SMALL, driver="steam")}, "template.driver"),
        ({"template": replace(SMALL, driver="kubernetes")}, "template.driver"),
        ({"template": replace(SMALL, region="a b")}, "template.region"),
        ({"template": replace(SMALL, labels={"a b": "c"})}, "template.labels.a b"),
        ({"template": replace(SMALL, region="us"), "serves": WorkSelector(region="eu")}, "template.region"),
        ({"serves": WorkSelector(class_="a b")}, "serves.class"),
        ({"serves": WorkSelector(labels={"": "x"})}, "serves.labels."),
        ({**sized({"cpu": 2}), "template": SMALL}, "template.capacity"),
        (sized({"cpu": 2}, {"cpu": 2}), "sizes[1].capacity"),
        (sized({"cpu": 2, "memory": 2}, {"cpu": 3, "memory": 1}), "sizes[1].capacity"),
        (sized({"cpu": 2}, {"memory": 3}), "sizes[1].capacity"),
        (sized({}), "sizes[0].capacity"),
    ],
)
def test_a_bad_policy_is_refused_by_the_name_of_its_field(change: dict[str, Any], field: str) -> None:
    with pytest.raises(Refused) as caught:
        named_admission.admit(replace(GOOD, **change), KNOWN)
    assert caught.value.field == field


def test_a_policy_is_written_with_suffixes_and_read_as_numbers() -> None:
    found = read(
        {
            "kind": "ScalePolicy", "name": "farm", "metric": "wait", "threshold": 20, "max": 3, "idle": "2m",
            "cool_down": "500ms", "serves": {"class": "render"},
            "sizes": [{"capacity": {"cpu": "500m", "memory": "1Gi"}}],
        }
    )  # fmt: skip
    assert isinstance(found, ScalePolicy)
    assert (found.idle, found.cool_down) == (120, 0.5)
    assert found.serves == WorkSelector(class_="render")
    assert found.steps() == ({"cpu": 0.5, "memory": 2**30},)
