"""What `deploy/` has for a cluster is taken by a real API server, with `dryRun=All`: chart and plain manifests."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from typing import Any

import pytest

from tests.deploy import rendering
from tests.kubernetes.server import TOKEN, KubeServer

_PATHS = {
    "Namespace": "/api/v1/namespaces",
    "ServiceAccount": "/api/v1/namespaces/{}/serviceaccounts",
    "Service": "/api/v1/namespaces/{}/services",
    "PersistentVolumeClaim": "/api/v1/namespaces/{}/persistentvolumeclaims",
    "ClusterRole": "/apis/rbac.authorization.k8s.io/v1/clusterroles",
    "ClusterRoleBinding": "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings",
    "Role": "/apis/rbac.authorization.k8s.io/v1/namespaces/{}/roles",
    "RoleBinding": "/apis/rbac.authorization.k8s.io/v1/namespaces/{}/rolebindings",
    "Deployment": "/apis/apps/v1/namespaces/{}/deployments",
    "StatefulSet": "/apis/apps/v1/namespaces/{}/statefulsets",
    "NetworkPolicy": "/apis/networking.k8s.io/v1/namespaces/{}/networkpolicies",
    "PodDisruptionBudget": "/apis/policy/v1/namespaces/{}/poddisruptionbudgets",
}
# A server this old knows the kind by another version, and not the field.
_OLD = (1, 21)
_OLD_PATHS = {"PodDisruptionBudget": ("/apis/policy/v1beta1/namespaces/{}/poddisruptionbudgets", "policy/v1beta1")}
_NEW_FIELDS = {"StatefulSet: spec.minReadySeconds"}
# In a dry run nothing is made, so what is inside of a namespace is sent to one that exists.
STAND_IN = "default"

Answer = tuple[int, dict[str, Any], list[str]]


def send(kube: KubeServer, document: rendering.Json) -> Answer:
    """The status, the body and the warnings that the server gives, for a creation that is not made."""
    moved = json.loads(json.dumps(document))
    if "namespace" in moved["metadata"]:
        moved["metadata"]["namespace"] = STAND_IN
    path = _PATHS[document["kind"]].format(STAND_IN)
    if version(kube) < _OLD and document["kind"] in _OLD_PATHS:
        path, moved["apiVersion"] = _OLD_PATHS[document["kind"]]
        path = path.format(STAND_IN)
    request = urllib.request.Request(
        f"{kube.url}{path}?dryRun=All&fieldValidation=Strict",
        data=json.dumps(moved).encode(),
        headers={"Authorization": f"Bearer {TOKEN}", "Content-Type": "application/json"},
    )
    try:
        with urllib.request.urlopen(request, timeout=30, context=kube.trust) as answer:
            return answer.status, json.load(answer), answer.headers.get_all("Warning") or []
    except urllib.error.HTTPError as error:
        return error.code, json.load(error), []


def version(kube: KubeServer) -> tuple[int, int]:
    with urllib.request.urlopen(_asking(kube, "/version"), timeout=30, context=kube.trust) as answer:
        told = json.load(answer)
    return int(told["major"]), int(told["minor"].rstrip("+"))


def _asking(kube: KubeServer, path: str) -> urllib.request.Request:
    return urllib.request.Request(f"{kube.url}{path}", headers={"Authorization": f"Bearer {TOKEN}"})


def lost(sent: Any, answered: Any, path: str = "") -> list[str]:
    """The paths of fields that the server did not keep: it does not know them."""
    if isinstance(sent, dict):
        fields = [(f"{path}.{name}".strip("."), value, (answered or {}).get(name)) for name, value in sent.items()]
    elif isinstance(sent, list):
        padded = [*(answered or []), *[None] * len(sent)]
        fields = [(f"{path}.{index}", value, padded[index]) for index, value in enumerate(sent)]
    else:
        return [path] if answered is None and sent is not None else []
    return [one for where, value, kept in fields for one in lost(value, kept, where)]


@pytest.fixture(scope="module", params=["chart", "plain"])
def documents(request: pytest.FixtureRequest) -> list[rendering.Json]:
    return rendering.documents(rendering.render()) if request.param == "chart" else rendering.plain_documents()


def test_the_api_server_takes_all_of_it_and_warns_of_nothing(kube: KubeServer, documents: list[rendering.Json]) -> None:
    assert len(documents) >= 16
    for document in documents:
        status, body, warnings = send(kube, document)
        assert (status, warnings) == (201, []), (document["kind"], document["metadata"]["name"], body.get("message"))
        unknown = (
            {f"{document['kind']}: {path}" for path in lost(document["spec"], body["spec"], "spec")}
            if "spec" in document
            else set()
        )
        assert unknown <= (_NEW_FIELDS if version(kube) < (1, 22) else set())


def test_a_field_that_the_server_does_not_know_is_found(kube: KubeServer) -> None:
    document = next(one for one in rendering.plain_documents() if one["kind"] == "NetworkPolicy")
    wrong = {**document, "spec": {**document["spec"], "egres": [{"ports": [{"port": 1}]}]}}
    status, body, _ = send(kube, wrong)
    assert status == 400 or lost(wrong["spec"], body["spec"]) == ["egres.0.ports.0.port"]


def test_nothing_was_made(kube: KubeServer, documents: list[rendering.Json]) -> None:
    for document in documents:
        assert send(kube, document)[0] == 201
    with urllib.request.urlopen(_asking(kube, "/apis/apps/v1/statefulsets"), timeout=30, context=kube.trust) as answer:
        assert json.load(answer)["items"] == []
