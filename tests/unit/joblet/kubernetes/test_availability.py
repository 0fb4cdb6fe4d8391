"""How much of a cluster there is for its target."""

from __future__ import annotations

from typing import Any

import pytest

from controlplane.joblet.drivers.kubernetes.availability import available, requests_of
from controlplane.joblet.drivers.kubernetes.cluster_quantities import parse
from tests.unit.joblet.kubernetes.pods import condition


def a_node(name: str = "n1", *, ready: str = "True", spec: dict[str, Any] | None = None) -> dict[str, Any]:
    allocatable = {"cpu": "4", "memory": "8Gi", "pods": "110"}
    status = {"allocatable": allocatable, "conditions": [condition("Ready", ready)]}
    return {"metadata": {"name": name}, "spec": spec or {}, "status": status}


def asking(**amounts: str) -> dict[str, Any]:
    return {"resources": {"requests": amounts}}


def somebodys_pod(node: str = "n1", phase: str = "Running", **spec: Any) -> dict[str, Any]:
    return {"spec": {"nodeName": node, "containers": [asking(cpu="1")], **spec}, "status": {"phase": phase}}


def test_what_nodes_can_give_is_summed() -> None:
    assert available([a_node("n1"), a_node("n2")], []) == {"cpu": 8, "memory": 16 * 2**30, "pods": 220}


@pytest.mark.parametrize(
    "out",
    [
        {"ready": "False"},
        {"ready": "Unknown"},
        {"spec": {"unschedulable": True}},
        {"spec": {"taints": [{"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}]}},
        {"spec": {"taints": [{"key": "node.kubernetes.io/unreachable", "effect": "NoExecute"}]}},
    ],
)
def test_nodes_that_take_nothing_give_nothing(out: dict[str, Any]) -> None:
    assert available([a_node("n1"), a_node("n2", **out)], [])["cpu"] == 4


def test_nodes_kept_for_some_count_since_jobs_may_tolerate_that() -> None:
    assert available([a_node(spec={"taints": [{"key": "gpu", "effect": "NoSchedule"}]})], [])["cpu"] == 4


def test_what_others_ask_for_is_not_there() -> None:
    assert available([a_node()], [somebodys_pod(), somebodys_pod()]) == {"cpu": 2, "memory": 8 * 2**30, "pods": 108}


@pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
def test_what_has_ended_takes_no_room(phase: str) -> None:
    assert available([a_node()], [somebodys_pod(phase=phase)])["cpu"] == 4


def test_what_waits_for_a_node_takes_no_room_yet() -> None:
    assert available([a_node()], [somebodys_pod(node="")])["cpu"] == 4


def test_a_node_that_is_over_full_takes_nothing_from_others() -> None:
    large = somebodys_pod(containers=[asking(cpu="6")])
    assert available([a_node("n1"), a_node("n2")], [large])["cpu"] == 4


def test_quantities_have_the_names_that_jobs_use() -> None:
    node = a_node()
    node["status"]["allocatable"] |= {"nvidia/x": "1", "nvidia.com/gpu": "2", "ephemeral-storage": "10Gi"}
    found = available([node], [])
    assert (found["gpu"], found["storage"]) == (2, 10 * 2**30)
    assert "nvidia/x" not in found


def test_a_pod_needs_its_containers_together_or_its_largest_beginning() -> None:
    containers = [asking(cpu="1", memory="1Gi"), asking(cpu="500m")]
    assert requests_of({"spec": {"containers": containers}}) == {"cpu": 1.5, "memory": 2**30}
    starts = [asking(cpu="3"), asking(memory="512Mi")]
    assert requests_of({"spec": {"containers": containers, "initContainers": starts}}) == {"cpu": 3, "memory": 2**30}


def test_a_sidecar_stays_beside_all_that_follows() -> None:
    sidecar = {**asking(cpu="1"), "restartPolicy": "Always"}
    spec = {"initContainers": [sidecar, asking(cpu="3")], "containers": [asking(cpu="2")]}
    assert requests_of({"spec": spec}) == {"cpu": 4}


def test_overhead_counts_and_a_limit_alone_is_a_request() -> None:
    container = {"resources": {"limits": {"cpu": "2", "memory": "1Gi"}, "requests": {"cpu": "1"}}}
    found = requests_of({"spec": {"containers": [container], "overhead": {"cpu": "250m"}}})
    assert found == {"cpu": 1.25, "memory": 2**30}


def test_an_empty_cluster_has_nothing() -> None:
    assert available([], [somebodys_pod()]) == {}


@pytest.mark.parametrize(
    ("text", "amount"),
    [
        ("2", 2), ("1500m", 1.5), ("4039984Ki", 4039984 * 1024), ("12e3", 12000), ("1.5Gi", 1.5 * 2**30),
        ("100k", 100_000),
        ("250000000n", 0.25), ("110", 110), ("5E", 5 * 10**18), ("x", None), ("", None), (None, None), (7, 7),
    ],
)  # fmt: skip
def test_amounts_are_read_as_the_api_writes_them(text: object, amount: float | None) -> None:
    assert parse(text) == amount
