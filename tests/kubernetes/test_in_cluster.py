"""A joblet inside its cluster: no kubeconfig, only what a pod finds in its file system and environment.

The process gets a mount namespace of its own in which the files of a service account lie where a kubelet puts them.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from pathlib import Path
from urllib.parse import urlsplit

from tests.kubernetes.kubelet import Cluster
from tests.kubernetes.server import KubeServer

NAMESPACE = "inside"
ACCOUNT = "joblet"
_IN_A_POD = (
    "mount -t tmpfs none /run && mkdir -p /run/secrets/kubernetes.io && "
    'cp -r "$1" /run/secrets/kubernetes.io/serviceaccount && shift && exec "$@"'
)
_ASKS = """
import asyncio, json
from controlplane.joblet.drivers.kubernetes.api import connect, namespace_of
from controlplane.joblet.drivers.kubernetes.api import Answered

async def ask(api, path):
    try:
        return [one["metadata"]["name"] for one in (await api.ask("GET", path))["items"]]
    except Answered as error:
        return error.status

async def main():
    api = await connect("", seconds=10.0)
    place = namespace_of("")
    answers = [await ask(api, f"/api/v1/namespaces/{name}/pods") for name in (place, "default")]
    await api.close()
    print(json.dumps([place, *answers]))

asyncio.run(main())
"""


async def an_account(cluster: Cluster) -> str:
    """A service account that may list the pods of its namespace and nothing else; its token."""
    await cluster.add_namespace(NAMESPACE)
    await cluster.ask(
        "POST", f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts", {"metadata": {"name": ACCOUNT}}, allow=(409,)
    )
    rbac = f"/apis/rbac.authorization.k8s.io/v1/namespaces/{NAMESPACE}"
    rules = [{"apiGroups": [""], "resources": ["pods"], "verbs": ["list"]}]
    await cluster.ask("POST", f"{rbac}/roles", {"metadata": {"name": "see"}, "rules": rules}, allow=(409,))
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "see"}
    subject = {"kind": "ServiceAccount", "name": ACCOUNT, "namespace": NAMESPACE}
    bound = {"metadata": {"name": "see"}, "roleRef": role, "subjects": [subject]}
    await cluster.ask("POST", f"{rbac}/rolebindings", bound, allow=(409,))
    return await cluster.token_of(NAMESPACE, ACCOUNT)


async def test_the_service_account_of_a_pod_is_who_it_is(tmp_path: Path, kube: KubeServer, cluster: Cluster) -> None:
    files = {"token": await an_account(cluster), "ca.crt": kube.ca, "namespace": NAMESPACE}
    account = tmp_path / "account"
    account.mkdir()
    for name, content in files.items():
        (account / name).write_text(content)
    pod = {"metadata": {"name": "one"}, "spec": {"containers": [{"name": "one", "image": "registry.example/none:1"}]}}
    await cluster.ask("POST", f"/api/v1/namespaces/{NAMESPACE}/pods", pod, allow=(409,))
    at = urlsplit(kube.url)
    where = {"KUBERNETES_SERVICE_HOST": str(at.hostname), "KUBERNETES_SERVICE_PORT": str(at.port)}
    apart = ["unshare", "--mount", *(["--map-root-user"] if os.geteuid() else [])]
    done = await asyncio.to_thread(run, [*apart, "sh", "-c", _IN_A_POD, "sh", str(account)], where)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == [NAMESPACE, ["one"], 403]
    outside = await asyncio.to_thread(run, [], where)
    assert b"this is no pod of a cluster" in outside.stderr


def run(within: list[str], more: dict[str, str]) -> subprocess.CompletedProcess[bytes]:
    command = [*within, sys.executable, "-c", _ASKS]
    return subprocess.run(command, capture_output=True, timeout=120, env={**os.environ, **more})
