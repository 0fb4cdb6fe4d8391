"""What a MachineDeployment has to be for a made target, and which requests come too late."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from controlplane.model.errors import Refused, StaleAttempt
from controlplane.model.scalepolicy import ClusterApi, Made
from controlplane.providers import machine_deployments as machines

POOL = ClusterApi(namespace="clusters", template="pool", machine={"cpu": 4})
MADE = Made(
    id="B", target="farm-1", policy="farm", provider="cluster-api", epoch=1, request="R1", capacity={"cpu": 6},
    cluster_api=POOL,
)  # fmt: skip
TEMPLATE: dict[str, Any] = {
    "metadata": {"name": "pool", "uid": "u", "resourceVersion": "7", "labels": {"team": "film"}},
    "spec": {
        "clusterName": "pool",
        "replicas": 0,
        "template": {"metadata": {"labels": {"a": "b"}}, "spec": {"version": "v1.31.0"}},
    },
    "status": {"replicas": 0},
}  # fmt: skip


def made(**change: Any) -> Made:
    return replace(MADE, **change)


def stored(one: Made = MADE) -> dict[str, Any]:
    return machines.new(TEMPLATE, one)


def test_a_new_one_is_the_template_under_the_targets_name_and_with_its_machines() -> None:
    found = stored()
    assert found["metadata"]["name"] == "farm-1"
    assert found["metadata"]["labels"] == {
        "team": "film", "app.kubernetes.io/managed-by": "controlplane", "controlplane/policy": "farm",
        "controlplane/target": "farm-1", "cluster.x-k8s.io/cluster-name": "farm-1",
    }  # fmt: skip
    chosen = {"cluster.x-k8s.io/cluster-name": "farm-1", "cluster.x-k8s.io/deployment-name": "farm-1"}
    assert found["spec"] == {
        "clusterName": "farm-1", "replicas": 2, "selector": {"matchLabels": chosen},
        "template": {
            "metadata": {"labels": {"a": "b", **chosen}},
            "spec": {"version": "v1.31.0", "clusterName": "farm-1"},
        },
    }  # fmt: skip
    assert TEMPLATE["spec"]["clusterName"] == "pool", "the template stays as it is"


def test_asked_again_nothing_is_written_and_a_later_request_is() -> None:
    assert machines.brought(stored(), MADE) is None
    larger = machines.brought(stored(), made(generation=2, request="R2", capacity={"cpu": 9}))
    assert larger is not None
    assert larger["spec"]["replicas"] == 3
    assert machines.brought(larger, made(generation=2, request="R2", capacity={"cpu": 9})) is None


def test_a_person_who_changed_the_replicas_is_corrected() -> None:
    found = stored()
    found["spec"]["replicas"] = 9
    corrected = machines.brought(found, MADE)
    assert corrected is not None
    assert corrected["spec"]["replicas"] == 2


@pytest.mark.parametrize(
    "later",
    [stored(made(generation=2, request="R2")), stored(made(id="C")), machines.removed(stored(), made(generation=2))],
)
def test_what_a_deposed_leader_asks_late_is_refused(later: dict[str, Any]) -> None:
    with pytest.raises(StaleAttempt):
        machines.brought(later, MADE)


def test_a_removed_one_has_no_machines_stays_so_and_is_taken_up_by_a_later_target_of_its_name() -> None:
    gone = machines.removed(stored(), made(generation=2, request="R2"))
    assert gone is not None
    assert gone["spec"]["replicas"] == 0
    assert machines.removed(gone, made(generation=2, request="R2")) is None
    again = machines.brought(gone, made(id="C", request="R3"))
    assert again is not None
    assert again["spec"]["replicas"] == 2
    assert machines.removed(again, made(generation=2)) is None, "a later target's"
    assert machines.brought(again, made(id="C", request="R3")) is None


@pytest.mark.parametrize("strip", ["labels", "annotations"])
def test_what_somebody_else_made_is_never_touched(strip: str) -> None:
    foreign = stored()
    foreign["metadata"][strip] = {}
    for judge in (machines.brought, machines.removed):
        with pytest.raises(Refused, match="was not made for this target"):
            judge(foreign, MADE)


def test_of_many_removed_ones_the_oldest_without_machines_are_forgotten() -> None:
    many = [stored(made(id=f"{number:03}")) for number in range(machines.TOMBSTONES + 3)]
    gone = [machines.removed(one, made(id="~", generation=2)) or {} for one in many]
    for one, number in zip(gone, range(len(gone)), strict=True):
        one["metadata"]["annotations"][machines.MADE] = f"{number:03}"
    gone[1]["status"] = {"replicas": 1}
    assert machines.forgotten([*reversed(gone), stored()]) == [gone[0], gone[2]]
