"""What `deploy/` has for a cluster: it fits Kubernetes' own schemas, and asks for no more than a restricted pod may."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

ROOT = Path(__file__).parents[3]
FILES = sorted((ROOT / "deploy" / "kubernetes").glob("*.yaml"))
VERSIONS = ("1.29", "1.34")


def documents() -> list[dict[str, Any]]:
    return [one for file in FILES for one in yaml.safe_load_all(file.read_text())]


@pytest.mark.parametrize("version", VERSIONS)
def test_every_manifest_fits_the_schemas(version: str) -> None:
    kinds = [one["kind"] for one in documents()]
    assert {"Namespace", "ServiceAccount", "ClusterRole", "Role", "Deployment"} <= set(kinds)
    for one in documents():
        kubernetes_validate.validate(one, version, strict=True)


def test_a_field_that_nobody_knows_is_found() -> None:
    wrong = next(one for one in documents() if one["kind"] == "Deployment") | {"spek": {}}
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(wrong, VERSIONS[0], strict=True)


def test_the_joblet_runs_as_a_restricted_pod_may() -> None:
    (deployment,) = [one for one in documents() if one["kind"] == "Deployment"]
    pod = deployment["spec"]["template"]["spec"]
    assert (pod["securityContext"]["runAsNonRoot"], pod["securityContext"]["seccompProfile"]["type"]) == (
        True,
        "RuntimeDefault",
    )
    (container,) = pod["containers"]
    context = container["securityContext"]
    assert (context["allowPrivilegeEscalation"], context["capabilities"]) == (False, {"drop": ["ALL"]})
    assert (deployment["spec"]["replicas"], deployment["spec"]["strategy"]["type"]) == (1, "Recreate")


def test_no_right_is_a_wildcard_and_secrets_are_never_read() -> None:
    rules = [rule for one in documents() if one["kind"] in ("Role", "ClusterRole") for rule in one["rules"]]
    assert all("*" not in rule["verbs"] + rule["resources"] + rule["apiGroups"] for rule in rules)
    secrets = {verb for rule in rules if "secrets" in rule["resources"] for verb in rule["verbs"]}
    assert secrets.isdisjoint({"get", "list", "watch"})
