"""The chart: what Helm makes of it fits Kubernetes' own schemas, the plain manifests agree, and nothing asks for more
than a restricted pod may."""

from __future__ import annotations

from typing import Any

import kubernetes_validate
import pytest

from tests.deploy import rendering
from tests.deploy.rendering import Json, RenderingFailed
from tests.deploy.shown_options import options_in, options_of

VERSIONS = ("1.29", "1.34")
DIGEST = f"sha256:{'a' * 64}"
EVERYTHING = (
    "--set-json",
    'networkPolicy.clients=[{"ipBlock":{"cidr":"10.0.0.0/8"}}]',
    "--set-json",
    'networkPolicy.replicaEgress=[{"ports":[{"port":6443,"protocol":"TCP"}]}]',
    "--set-json",
    'replica.tolerations=[{"key":"a","operator":"Exists"}]',
    "--set",
    "replica.nodeSelector.disk=ssd,replica.extraArgs={--ttl=7},image.pullSecrets={mine},service.annotations.a=b",
    "--set",
    f"image.digest={DIGEST},joblet.storageClass=fast,joblet.extraArgs={{--security=baseline}},namespace.create=true",
)
VALUES = {
    "default": (),
    "plain": rendering.PLAIN_VALUES,
    "without joblet": ("--set", "joblet.enabled=false"),
    "without policies": ("--set", "networkPolicy.enabled=false"),
    "everything": EVERYTHING,
}


@pytest.fixture(scope="module", params=VALUES)
def rendered(request: pytest.FixtureRequest) -> list[Json]:
    return rendering.documents(rendering.render(*VALUES[request.param]))


def test_the_plain_manifests_are_what_the_chart_makes() -> None:
    assert rendering.stale() == [], "run scripts/manifests"


def test_plain_manifests_and_default_values_differ_by_the_namespace_alone() -> None:
    def by_name(documents: list[Json]) -> dict[tuple[str, str], Json]:
        return {
            (one["kind"], f"{one['metadata'].get('namespace')}/{one['metadata']['name']}"): one for one in documents
        }

    default, plain = by_name(rendering.documents(rendering.render())), by_name(rendering.plain_documents())
    assert {key for key in plain if key not in default} == {("Namespace", "None/controlplane")}
    assert {key: plain[key] for key in default} == default


@pytest.mark.parametrize("version", VERSIONS)
def test_everything_fits_the_schemas(rendered: list[Json], version: str) -> None:
    assert {"ServiceAccount", "StatefulSet", "Service", "PodDisruptionBudget"} <= {one["kind"] for one in rendered}
    for one in rendered:
        kubernetes_validate.validate(one, version, strict=True)


def test_a_field_that_nobody_knows_is_found() -> None:
    wrong = next(one for one in rendering.plain_documents() if one["kind"] == "Deployment") | {"spek": {}}
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(wrong, VERSIONS[0], strict=True)


def test_every_pod_runs_as_a_restricted_pod_may(rendered: list[Json]) -> None:
    for pod in pods(rendered):
        security = pod["securityContext"]
        assert (security["runAsNonRoot"], security["seccompProfile"]) == (True, {"type": "RuntimeDefault"})
        assert security["runAsUser"] > 1000
        assert not {"hostNetwork", "hostPID", "hostIPC"} & set(pod)
        assert all("hostPath" not in volume for volume in pod["volumes"])
        for container in pod["containers"]:
            assert container["securityContext"] == {
                "allowPrivilegeEscalation": False,
                "readOnlyRootFilesystem": True,
                "capabilities": {"drop": ["ALL"]},
            }
            assert {"cpu", "memory"} <= set(container["resources"]["requests"])
            assert "memory" in container["resources"]["limits"]


def test_secrets_are_mounted_for_the_group_alone_and_in_no_environment(rendered: list[Json]) -> None:
    for pod in pods(rendered):
        secrets = [volume["secret"] for volume in pod["volumes"] if "secret" in volume]
        assert secrets
        assert all(secret["defaultMode"] == 0o440 for secret in secrets)
        for container in pod["containers"]:
            assert "envFrom" not in container
            assert all("secretKeyRef" not in one.get("valueFrom", {}) for one in container.get("env", ()))


def test_only_the_joblet_has_a_token_of_the_cluster() -> None:
    tokens = {
        one["metadata"]["name"]: one["spec"]["template"]["spec"]["automountServiceAccountToken"]
        for one in rendering.documents(rendering.render())
        if one["kind"] in ("Deployment", "StatefulSet")
    }
    assert tokens == {"controlplane": False, "joblet": True}


def test_no_right_is_a_wildcard_and_secrets_are_never_read(rendered: list[Json]) -> None:
    rules = [rule for one in rendered if one["kind"] in ("Role", "ClusterRole") for rule in one["rules"]]
    assert all("*" not in rule["verbs"] + rule["resources"] + rule["apiGroups"] for rule in rules)
    secrets = {verb for rule in rules if "secrets" in rule["resources"] for verb in rule["verbs"]}
    assert secrets.isdisjoint({"get", "list", "watch"})


def test_two_of_three_replicas_stay_and_one_joblet_is_never_two() -> None:
    by_kind: dict[str, list[Json]] = {}
    for one in rendering.documents(rendering.render()):
        by_kind.setdefault(one["kind"], []).append(one)
    (budget,) = by_kind["PodDisruptionBudget"]
    (replicas,) = by_kind["StatefulSet"]
    (joblet,) = by_kind["Deployment"]
    assert (replicas["spec"]["replicas"], budget["spec"]["maxUnavailable"]) == (3, 1)
    assert budget["spec"]["selector"] == replicas["spec"]["selector"]
    assert (joblet["spec"]["replicas"], joblet["spec"]["strategy"]) == (1, {"type": "Recreate"})


def test_every_pod_has_a_policy_for_both_directions() -> None:
    documents = rendering.documents(rendering.render())
    policies = [one["spec"] for one in documents if one["kind"] == "NetworkPolicy"]
    for one in documents:
        if one["kind"] in ("Deployment", "StatefulSet"):
            labels = one["spec"]["template"]["metadata"]["labels"].items()
            meant = [
                policy["policyTypes"]
                for policy in policies
                if policy["podSelector"].get("matchLabels", {}).items() <= labels
            ]
            assert ["Ingress", "Egress"] in meant


def test_probes_ask_the_routes_that_are_open_without_credentials_over_tls() -> None:
    (replicas,) = [one for one in rendering.documents(rendering.render()) if one["kind"] == "StatefulSet"]
    (container,) = replicas["spec"]["template"]["spec"]["containers"]
    asked = {name: container[f"{name}Probe"]["httpGet"] for name in ("startup", "liveness", "readiness")}
    assert {name: probe["path"] for name, probe in asked.items()} == {
        "startup": "/livez",
        "liveness": "/livez",
        "readiness": "/readyz",
    }
    assert {probe["scheme"] for probe in asked.values()} == {"HTTPS"}


@pytest.mark.parametrize(("kind", "command"), [("StatefulSet", "replica"), ("Deployment", "joblet")])
def test_pods_give_options_that_the_commands_have(kind: str, command: str) -> None:
    (document,) = [one for one in rendering.documents(rendering.render()) if one["kind"] == kind]
    (container,) = document["spec"]["template"]["spec"]["containers"]
    assert container["command"] == ["controlplane", command]
    given = options_in("\n".join(container["args"]))
    assert given <= options_of(command)
    assert "--insecure" not in given


def test_a_digest_goes_before_a_tag() -> None:
    images = {
        container["image"]
        for pod in pods(rendering.documents(rendering.render(*EVERYTHING)))
        for container in pod["containers"]
    }
    assert images == {f"controlplane@{DIGEST}"}


@pytest.mark.parametrize(
    ("wrong", "field"),
    [
        ("image.tag=latest", "image.tag"),
        ("image.digest=sha256:short", "image.digest"),
        ("replica.replicas=1", "replica.replicas"),
        ("replica.etcd.endpoints={http://etcd:2379}", "replica.etcd.endpoints.0"),
        ("replica.etcd.endpoints={https://etcd:2379 --insecure}", "replica.etcd.endpoints.0"),
        ("replica.extraArgs={x}", "replica.extraArgs.0"),
        ("replica.port=7", "replica"),
        ("joblet.tasksNamespace=A_B", "joblet.tasksNamespace"),
        ("joblet.endpoints=somewhere", "joblet.endpoints"),
        ("networkPolicy.etcdPort=0", "networkPolicy.etcdPort"),
        ("replica.tlsSecret=", "replica.tlsSecret"),
        ("unknown=1", "(root)"),
    ],
)
def test_values_that_cannot_be_meant_are_refused_by_name(wrong: str, field: str) -> None:
    with pytest.raises(RenderingFailed) as refused:
        rendering.render("--set", wrong)
    assert f"- {field}" in str(refused.value)


def pods(documents: list[Json]) -> list[dict[str, Any]]:
    return [one["spec"]["template"]["spec"] for one in documents if one["kind"] in ("Deployment", "StatefulSet")]
