"""The rights in `deploy/` are enough for the driver, and not one more: judged by the API server's own audit log.

The driver runs with the token of the service account that the manifests make, through everything that it does there.
Each right must have been used, nothing may have been forbidden, and without each of them its request is.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import yaml

from controlplane.aio.clock import SystemClock
from controlplane.aio.failpoint import NONE
from controlplane.joblet.attempt_records import AttemptRecords
from controlplane.joblet.drivers.kubernetes.api import connect
from controlplane.joblet.drivers.kubernetes.container_logs import ClusterLogs
from controlplane.joblet.drivers.kubernetes.journal import Journal, intent_of
from controlplane.joblet.drivers.kubernetes.kubernetes_driver import KubernetesDriver
from controlplane.joblet.drivers.kubernetes.pod import PodDefaults
from controlplane.joblet.drivers.kubernetes.pod_supervisor import ClusterTimes
from controlplane.joblet.joblet_state import JobletFolder, read_boot
from controlplane.joblet.log_source import LogQuery
from controlplane.model.errors import Unavailable
from controlplane.model.fulfilment import Fulfilment, TaskRef, TaskSpec
from tests.builders import an_identity
from tests.kubernetes.conftest import binary_or_skip
from tests.kubernetes.kubelet import PATIENCE_SECONDS, Cluster, Json, Kubelet
from tests.kubernetes.server import KubeServer, running_server

FILES = [Path(__file__).parents[2] / "deploy" / "kubernetes" / name for name in ("namespaces.yaml", "joblet.yaml")]
USER = "system:serviceaccount:controlplane:joblet"
TASKS = "controlplane-tasks"
_PATHS = {
    "Namespace": "/api/v1/namespaces",
    "ServiceAccount": "/api/v1/namespaces/{}/serviceaccounts",
    "ClusterRole": "/apis/rbac.authorization.k8s.io/v1/clusterroles",
    "ClusterRoleBinding": "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings",
    "Role": "/apis/rbac.authorization.k8s.io/v1/namespaces/{}/roles",
    "RoleBinding": "/apis/rbac.authorization.k8s.io/v1/namespaces/{}/rolebindings",
    "PersistentVolumeClaim": "/api/v1/namespaces/{}/persistentvolumeclaims",
    "Deployment": "/apis/apps/v1/namespaces/{}/deployments",
}
_METHODS = {"create": "POST", "patch": "PATCH", "delete": "DELETE"}
# (kind of role, resource, verb)
Right = tuple[str, str, str]


def documents() -> list[Json]:
    return [document for file in FILES for document in yaml.safe_load_all(file.read_text())]


def rights() -> list[Right]:
    return [
        (one["kind"], resource, verb)
        for one in documents()
        if one["kind"] in ("Role", "ClusterRole")
        for rule in one["rules"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    ]


@pytest.fixture(scope="module")
def audited(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[KubeServer, Path]]:
    """A cluster that writes down what our account asks for."""
    folder = tmp_path_factory.mktemp("audited")
    rule = {"level": "Metadata", "users": [USER], "omitStages": ["RequestReceived"]}
    policy = {"apiVersion": "audit.k8s.io/v1", "kind": "Policy", "rules": [rule, {"level": "None"}]}
    (folder / "policy.json").write_text(json.dumps(policy))
    log = folder / "audit.log"
    flags = [f"--audit-policy-file={folder / 'policy.json'}", f"--audit-log-path={log}", "--audit-log-mode=blocking"]
    with running_server(binary_or_skip(), folder, flags) as server:
        yield server, log


@pytest.fixture
async def admin(audited: tuple[KubeServer, Path]) -> AsyncIterator[Cluster]:
    async with Cluster(audited[0]) as administrator:
        for one in documents():
            place = _PATHS[one["kind"]].format(one["metadata"].get("namespace", ""))
            await administrator.ask("POST", place, one, allow=(409,))
        yield administrator


def asked(log: Path) -> list[Json]:
    return [json.loads(line) for line in log.read_text().splitlines()]


def used(log: Path) -> set[tuple[str, str]]:
    """(resource, verb) of what was asked of the API, its probes apart."""
    found = set()
    for event in asked(log):
        where: dict[str, Any] = event.get("objectRef") or {}
        if where:
            sub = where.get("subresource")
            found.add((where["resource"] + (f"/{sub}" if sub else ""), event["verb"]))
    return found


@asynccontextmanager
async def a_driver(folder: Path, kubeconfig: Path) -> AsyncIterator[KubernetesDriver]:
    """One that goes on with what is in the folder, and whose session is confirmed for good."""
    clock = SystemClock()
    state = JobletFolder(folder, read_boot())
    records = AttemptRecords(folder, boot=state.boot, clock=clock)
    api = await connect(str(kubeconfig), seconds=1.0)
    driver = KubernetesDriver(
        "eu", api, PodDefaults(namespace=TASKS), state, records, clock=clock, times=ClusterTimes(tombstone=1.0),
        failpoints=NONE, logs=ClusterLogs(api, TASKS).open,
    )  # fmt: skip
    driver.attach(lambda identity: None)
    state.confirm(clock.monotonic(), 1e6)
    running = asyncio.create_task(driver.run())
    try:
        async with asyncio.timeout(PATIENCE_SECONDS):
            await driver.gate.opened()
        yield driver
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        await api.close()
        records.close()
        state.close()


def a_fulfilment() -> Fulfilment:
    """With a resource that is mounted as a file."""
    task = TaskRef(job="render", index=0, attempt=1)
    spec = TaskSpec(command=("run",), image="none:1", requests={"cpu": 1}, files={"/etc/scene": "42"})
    return Fulfilment(
        id=an_identity(), epoch=1, cycle=1, order=an_identity(), target="eu", tasks=(task,), jobs={"render": spec}
    )


async def read_log(kubeconfig: Path, one: Fulfilment) -> None:
    """It may ask; without a node that answers it gets none."""
    api = await connect(str(kubeconfig), seconds=1.0)
    query = LogQuery(order=one.order, fulfilment=one.id, task=one.tasks[0])
    log = ClusterLogs(api, TASKS).open(query)
    try:
        with pytest.raises(Unavailable):
            await log.read(100)
    finally:
        log.close()
        await api.close()


async def holds(look: Callable[[], Awaitable[object] | object], what: str) -> None:
    try:
        async with asyncio.timeout(PATIENCE_SECONDS):
            while True:
                found = look()
                if await found if isinstance(found, Awaitable) else found:
                    return
                await asyncio.sleep(0.05)
    except TimeoutError:
        raise AssertionError(f"never: {what}") from None


async def test_the_driver_needs_every_right_and_no_other(
    tmp_path: Path, audited: tuple[KubeServer, Path], admin: Cluster
) -> None:
    kube, log = audited
    kubeconfig = tmp_path / "kubeconfig.json"
    kubeconfig.write_text(kube.kubeconfig_for(token=await admin.token_of("controlplane", "joblet")))
    await admin.add_node("node-1")
    kubelet = Kubelet(admin, namespace=TASKS)
    ends, stops, vanished = a_fulfilment(), a_fulfilment(), a_fulfilment()
    # Of a former life nobody knows whether its create acted: the next one looks.
    Journal(tmp_path).write(intent_of(vanished, files=False))

    async def pods(one: Fulfilment) -> list[Json]:
        return await admin.pods(TASKS, f"controlplane/fulfilment={one.id}")

    async def leaving() -> bool:
        """A node lets go of what is to be deleted."""
        there = await admin.pods(TASKS)
        for pod in there:
            if pod["metadata"].get("deletionTimestamp"):
                await kubelet.remove(pod)
        return not there

    async with a_driver(tmp_path, kubeconfig) as driver:
        await holds(lambda: ("pods", "get") in used(log), "what nobody knows was looked for")
        for one in (ends, stops):
            driver.start(one, one.tasks[0])
            await holds(partial(pods, one), "its pod is there")
            await kubelet.run((await pods(one))[0])
        await read_log(kubeconfig, ends)
        await kubelet.finish((await pods(ends))[0])
        await holds(lambda: driver.seen(ends.id)[ends.tasks[0]].phase == "Succeeded", "its end is seen")
        driver.stop(stops.id, stops.tasks[0], "Cancelled")
        await holds(lambda: ("pods", "delete") in used(log), "the stop is asked for")
        await leaving()
        for one in (ends, stops, vanished):
            driver.drop(one.id)
        await holds(leaving, "what ended is gone after its time")
        await holds(lambda: ("secrets", "delete") in used(log), "and its files with it")
    granted = {(resource, verb) for _, resource, verb in rights()}
    assert used(log) == granted
    assert [event for event in asked(log) if event["responseStatus"]["code"] == 403] == []


@pytest.mark.parametrize("right", rights(), ids=lambda right: "-".join(right))
async def test_without_one_of_them_its_request_is_forbidden(admin: Cluster, right: Right) -> None:
    kind, resource, verb = right
    async with Cluster(admin.server, await admin.token_of("controlplane", "joblet")) as joblet:
        assert await status(joblet, right) != 403
        role = next(one for one in documents() if one["kind"] == kind)
        place = f"{_PATHS[kind].format(role['metadata'].get('namespace', ''))}/{role['metadata']['name']}"
        lesser = [
            {**rule, "verbs": [one for one in rule["verbs"] if rule["resources"] != [resource] or one != verb]}
            for rule in role["rules"]
        ]
        await admin.ask("PUT", place, {**role, "rules": [rule for rule in lesser if rule["verbs"]]})
        try:
            await settles(joblet, right, 403)
        finally:
            await admin.ask("PUT", place, role)
        async with asyncio.timeout(30):
            while await status(joblet, right) == 403:
                await asyncio.sleep(0.05)


async def settles(joblet: Cluster, right: Right, code: int) -> None:
    """Authorisation follows a change of roles within moments."""
    async with asyncio.timeout(30):
        while await status(joblet, right) != code:
            await asyncio.sleep(0.05)


async def status(joblet: Cluster, right: Right) -> int:
    """What the API says to such a request; 200 when it takes it. None of them can change anything."""
    kind, resource, verb = right
    place = f"/api/v1/{resource}" if kind == "ClusterRole" else f"/api/v1/namespaces/{TASKS}/{resource}"
    if resource == "pods/log":
        place = f"/api/v1/namespaces/{TASKS}/pods/none/log"
    elif verb in ("get", "patch", "delete"):
        place += "/none"
    if verb == "watch":
        try:
            async for _ in joblet.watch(place, timeoutSeconds="1", resourceVersion="0"):
                break
        except AssertionError as refusal:
            return 403 if '"code":403' in str(refusal) else 500
        return 200
    body: Json | None = {} if verb != "list" else None
    answer = await joblet.ask(_METHODS.get(verb, "GET"), place, body, allow=tuple(range(300, 600)))
    return int(answer.get("code", 200))
