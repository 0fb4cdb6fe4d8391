"""A fulfilment as a Pod: what is in it, and that nothing else can get in."""

from __future__ import annotations

import base64
import re
from typing import Any

import pytest

from controlplane.joblet.drivers.kubernetes.pod import (
    PodDefaults,
    files_of,
    label_value,
    name_of,
    pod_of,
    refs_of,
    selector_of,
)
from controlplane.model.errors import Invalid
from controlplane.model.job import Constraint, Constraints, Toleration
from tests.unit.joblet.kubernetes.pods import IDENTITY, PLACE, a_fulfilment, a_ref


def the_container(**spec: Any) -> dict[str, Any]:
    found: dict[str, Any] = pod_of(a_fulfilment(**spec), PLACE)["spec"]["containers"][0]
    return found


def the_environment(**spec: Any) -> dict[str, str]:
    return {one["name"]: one["value"] for one in the_container(**spec)["env"]}


def test_its_name_follows_from_the_fulfilment_and_is_one_that_a_pod_may_have() -> None:
    assert pod_of(a_fulfilment(), PLACE)["metadata"]["name"] == name_of(IDENTITY) == f"cp-{IDENTITY.lower()}"
    assert re.fullmatch(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?", name_of(IDENTITY))


def test_labels_and_annotations_say_whose_it_is() -> None:
    metadata = pod_of(a_fulfilment(), PLACE)["metadata"]
    assert metadata["namespace"] == "work"
    assert metadata["labels"] == {
        "app.kubernetes.io/managed-by": "controlplane",
        "controlplane/fulfilment": IDENTITY,
        "controlplane/order": "01KXAMPLE0000000000000000A",
        "controlplane/target": "eu-1",
        "controlplane/job": "render",
    }
    assert metadata["annotations"] == {
        "controlplane/tasks": '[{"job":"render","index":0,"attempt":1}]',
        "controlplane/cycle": "3",
        "controlplane/epoch": "7",
        "controlplane/target-name": "eu-1",
        "controlplane/owner": "anna",
    }


def test_a_name_that_no_label_may_hold_becomes_a_digest_of_it() -> None:
    odd = pod_of(a_fulfilment(target="-odd."), PLACE)["metadata"]
    assert odd["labels"]["controlplane/target"] == label_value("-odd.") != label_value("-odd-")
    assert re.fullmatch(r"x-[0-9a-f]{32}", label_value("-odd."))
    assert odd["annotations"]["controlplane/target-name"] == "-odd."
    assert selector_of("-odd.").endswith(f",controlplane/target={label_value('-odd.')}")


def test_a_container_for_each_task_and_the_tasks_are_read_back() -> None:
    pod = pod_of(a_fulfilment(3), PLACE)
    assert [one["name"] for one in pod["spec"]["containers"]] == ["task-0", "task-1", "task-2"]
    assert [one["command"] for one in pod["spec"]["containers"]] == [["render", "0"], ["render", "1"], ["render", "2"]]
    assert refs_of(pod) == (a_ref(0, 1), a_ref(1, 2), a_ref(2, 3))


@pytest.mark.parametrize("metadata", [{}, {"annotations": None}, {"annotations": {"controlplane/tasks": "no"}}])
def test_a_pod_that_does_not_say_which_tasks_it_runs_runs_none(metadata: dict[str, Any]) -> None:
    assert refs_of({"metadata": metadata}) == ()


def test_a_task_sees_who_it_is_and_where_to_write() -> None:
    seen = the_environment(environment={"SCENE": "42", "CONTROLPLANE_ORDER": "forged"})
    assert seen == {
        "SCENE": "42",
        "CONTROLPLANE_ORDER": "01KXAMPLE0000000000000000A",
        "CONTROLPLANE_JOB": "render",
        "CONTROLPLANE_INDEX": "0",
        "CONTROLPLANE_ATTEMPT": "1",
        "CONTROLPLANE_TARGET": "eu-1",
        "CONTROLPLANE_PROGRESS": "/controlplane/progress",
        "CONTROLPLANE_ARTEFACTS": "/dev/termination-log",
    }


def test_the_cluster_replaces_nothing_a_second_time() -> None:
    container = the_container(command=("sh", "-c", "$$(SCENE) $(SCENE) $HOME $"), environment={"SCENE": "$(HOME)"})
    assert container["command"] == ["sh", "-c", "$$(SCENE) $$(HOME) $$HOME $$"]
    assert {"name": "SCENE", "value": "$$(HOME)"} in container["env"]


def test_without_a_command_the_image_says_what_runs() -> None:
    assert "command" not in the_container(command=())


def test_without_an_image_there_is_no_pod() -> None:
    with pytest.raises(Invalid, match=r"^image: job render names none") as refused:
        pod_of(a_fulfilment(image=""), PLACE)
    assert refused.value.field == "image"


def test_quantities_of_the_cluster_are_requests_and_limits_others_are_not_sent() -> None:
    asked = {"cpu": 0.1, "memory": 2**30, "power": 50, "gpu": 1, "example.org/fpga": 2, "storage": 10, "none": 0}
    amounts = {
        "cpu": "100m",
        "memory": "1073741824",
        "nvidia.com/gpu": "1",
        "example.org/fpga": "2",
        "ephemeral-storage": "10",
    }
    assert the_container(requests=asked)["resources"] == {"requests": amounts, "limits": amounts}


@pytest.mark.parametrize(
    ("cpu", "shown"), [(2, "2000m"), (0.0001, "1m"), (1.1, "1100m"), (0.30000000000000004, "300m")]
)
def test_fractions_are_rounded_up_to_what_the_cluster_counts_in(cpu: float, shown: str) -> None:
    assert the_container(requests={"cpu": cpu})["resources"]["requests"] == {"cpu": shown}


@pytest.mark.parametrize("name", ["pods", "power", "requests.x.io/y", "kubernetes.io/batch", "a.kubernetes.io/b", "/x"])
def test_names_that_are_not_for_pods_to_ask_for_stay_here(name: str) -> None:
    assert the_container(requests={name: 1})["resources"]["requests"] == {}


def test_it_may_do_little() -> None:
    spec = pod_of(a_fulfilment(), PLACE)["spec"]
    assert spec["restartPolicy"] == "Never"
    assert spec["automountServiceAccountToken"] is False
    assert spec["enableServiceLinks"] is False
    assert spec["securityContext"] == {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}}
    assert spec["containers"][0]["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
    }


def test_a_cluster_may_let_images_run_as_root_but_no_more() -> None:
    spec = pod_of(a_fulfilment(), PodDefaults(security="baseline", run_as_user=0))["spec"]
    assert spec["securityContext"] == {"seccompProfile": {"type": "RuntimeDefault"}, "runAsUser": 0}
    assert spec["containers"][0]["securityContext"]["allowPrivilegeEscalation"] is False


@pytest.mark.parametrize(("limit", "deadline"), [(None, None), (30, 30), (0.2, 1), (90.5, 91)])
def test_the_time_limit_is_the_cluster_s_to_keep(limit: float | None, deadline: int | None) -> None:
    spec = pod_of(a_fulfilment(time_limit=limit), PodDefaults(grace_seconds=7))["spec"]
    assert spec.get("activeDeadlineSeconds") == deadline
    assert spec["terminationGracePeriodSeconds"] == 7


def test_pull_secrets_are_those_of_the_cluster_and_of_the_job_by_name() -> None:
    pod = pod_of(a_fulfilment(image_pull_secrets=("film", "all")), PodDefaults(pull_secrets=("all",)))
    assert pod["spec"]["imagePullSecrets"] == [{"name": "all"}, {"name": "film"}]
    assert "imagePullSecrets" not in pod_of(a_fulfilment(), PLACE)["spec"]


def test_constraints_on_nodes_become_node_affinity() -> None:
    hard = (Constraint(label="zone", values=("a", "b")), Constraint(label="cores", op="Gt", values=("4",)))
    soft = (Constraint(label="disk", op="Exists", weight=0.5), Constraint(label="old", op="DoesNotExist", weight=0))
    pod = pod_of(a_fulfilment(2, nodes=Constraints(hard=hard, soft=soft)), PLACE)
    assert pod["spec"]["affinity"] == {
        "nodeAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": {
                "nodeSelectorTerms": [
                    {
                        "matchExpressions": [
                            {"key": "zone", "operator": "In", "values": ["a", "b"]},
                            {"key": "cores", "operator": "Gt", "values": ["4"]},
                        ]
                    }
                ]
            },
            "preferredDuringSchedulingIgnoredDuringExecution": [
                {"weight": 1, "preference": {"matchExpressions": [{"key": "disk", "operator": "Exists"}]}}
            ],
        }
    }
    assert "affinity" not in pod_of(a_fulfilment(), PLACE)["spec"]


def test_tolerations_are_passed_on() -> None:
    borne = (
        Toleration(key="gpu", op="Exists", effect="NoSchedule"),
        Toleration(key="team", value="film", effect="NoExecute", seconds=60),
    )
    assert pod_of(a_fulfilment(tolerations=borne), PLACE)["spec"]["tolerations"] == [
        {"key": "gpu", "operator": "Exists", "effect": "NoSchedule"},
        {"key": "team", "operator": "Equal", "value": "film", "effect": "NoExecute", "tolerationSeconds": 60},
    ]


def test_files_are_mounted_one_by_one_from_a_secret_of_the_same_name() -> None:
    fulfilment = a_fulfilment(2, files={"/etc/scene.json": "{}", "/etc/licence": "süß"})
    pod, secret = pod_of(fulfilment, PLACE), files_of(fulfilment, PLACE)
    assert secret is not None
    assert secret["metadata"] == pod["metadata"]
    assert {"name": "files", "secret": {"secretName": name_of(IDENTITY), "defaultMode": 0o444}} in pod["spec"][
        "volumes"
    ]
    for container in pod["spec"]["containers"]:
        mounts = {one["mountPath"]: one for one in container["volumeMounts"]}
        shown = {
            path: base64.b64decode(secret["data"][mounts[path]["subPath"]]).decode()
            for path in mounts
            if path != "/controlplane"
        }
        assert shown == {"/etc/scene.json": "{}", "/etc/licence": "süß"}
        assert all(mounts[path]["readOnly"] for path in shown)


def test_without_files_there_is_no_secret() -> None:
    assert files_of(a_fulfilment(), PLACE) is None
    assert [one["name"] for one in pod_of(a_fulfilment(), PLACE)["spec"]["volumes"]] == ["controlplane"]


def test_containers_of_one_pod_do_not_write_into_each_other_s_progress() -> None:
    pod = pod_of(a_fulfilment(2), PLACE)
    assert len({one["volumeMounts"][0]["subPath"] for one in pod["spec"]["containers"]}) == 2
