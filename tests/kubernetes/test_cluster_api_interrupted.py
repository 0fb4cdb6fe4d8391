"""A leader that dies while it scales through `cluster-api`, after any write or request: each cluster is made once."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import pytest
from kubernetes.aio.client.api_client import ApiClient
from kubernetes.aio.client.configuration import Configuration

from controlplane.aio.clock import SystemClock
from controlplane.model.errors import Deposed
from controlplane.model.scalepolicy import ClusterApi, Made, TargetSize, TargetTemplate
from controlplane.providers.cluster_api import ClusterApiProvider, by_file
from controlplane.store.kv import Store
from tests.component.scaling_stage import Cloud, a_policy
from tests.component.test_scaling_interrupted import BUSY, OVER, POLICY, WORK, Act, played, write
from tests.etcd import Etcd
from tests.kubernetes.conftest import binary_or_skip
from tests.kubernetes.kubelet import Cluster
from tests.kubernetes.management import define
from tests.kubernetes.server import KubeServer, running_server

_numbers = itertools.count(1)


class Machines(Cloud):
    """Clusters that are MachineDeployments; their joblets connect when the provider has acted.

    `left` counts requests: the leader dies when one more was answered, before it hears of it.
    """

    def __init__(self, store: Store, left: int | None, kube: KubeServer) -> None:
        super().__init__(store, left)
        self.sent = 0
        self.created = 0
        self._from_file = by_file(str(kube.kubeconfig))
        self._provider = ClusterApiProvider(self._connect, SystemClock())

    async def _act(self, action: str, made: Made) -> None:
        await getattr(self._provider, action)(made)
        left, self.left = self.left, None
        await super()._act(action, made)
        self.left = left

    async def _connect(self, where: ClusterApi) -> ApiClient:
        plain = await self._from_file(where)
        await plain.close()
        return Counted(plain.configuration, self)

    def answered(self, method: str, status: int) -> None:
        self.sent += 1
        self.created += (method, status) == ("POST", 201)
        if self.left is not None:
            self.left -= 1
            if self.left < 0:
                raise Deposed("died before the answer came")


class Counted(ApiClient):  # type: ignore[misc]
    def __init__(self, settings: Configuration, machines: Machines) -> None:
        super().__init__(settings)
        self._machines = machines

    async def call_api(self, method: str, *args: Any, **more: Any) -> Any:
        response = await super().call_api(method, *args, **more)
        await response.read()
        self._machines.answered(method, response.status)
        return response


@pytest.fixture(scope="module")
def kube(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KubeServer]:
    """A management cluster of its own."""
    with running_server(binary_or_skip(), tmp_path_factory.mktemp("management")) as server:
        yield server


class Play:
    """Each time in a namespace of its own, so that nothing of the time before is there."""

    def __init__(self, etcd: Etcd, cluster: Cluster, kube: KubeServer, sized: bool) -> None:
        self._etcd, self._cluster, self._kube, self._sized = etcd, cluster, kube, sized

    async def run(self, **dies: int) -> tuple[list[dict[str, Any]], dict[str, int], Machines, bool]:
        """Where etcd stood after each act, each cluster's machines at the end, the cloud; whether the leader died."""
        namespace = f"interrupted-{next(_numbers)}"
        path = await define(self._cluster, namespace)
        seen, cloud, died = await played(
            self._etcd, self._acts(namespace), lambda store, left: Machines(store, left, self._kube), **dies
        )
        found = (await self._cluster.ask("GET", path))["items"]
        machines = {one["metadata"]["name"]: one["spec"]["replicas"] for one in found}
        assert machines.pop("pool") == 0, "the template stays as it is"
        return [_elsewhere(state, namespace) for state in seen], machines, cloud, died

    def _acts(self, namespace: str) -> list[Act]:
        where = ClusterApi(namespace=namespace, template="pool", machine={"cpu": 1})
        if self._sized:
            sizes = tuple(TargetSize(capacity={"cpu": cpu}) for cpu in (1, 2))
            template = TargetTemplate(driver="process")
            policy = a_policy(provider="cluster-api", cluster_api=where, min=1, max=1, sizes=sizes, template=template)
        else:
            policy = a_policy(provider="cluster-api", cluster_api=where)
        return [write({POLICY: policy}), WORK, BUSY, OVER]


def _elsewhere(value: Any, namespace: str) -> Any:
    """The same, whatever the namespace is called."""
    if isinstance(value, dict):
        return {name: _elsewhere(inner, namespace) for name, inner in value.items()}
    if isinstance(value, list):
        return [_elsewhere(inner, namespace) for inner in value]
    return "the namespace" if value == namespace else value


@pytest.fixture(params=[False, True], ids=["number", "size"])
async def play(etcd: Etcd, cluster: Cluster, kube: KubeServer, request: pytest.FixtureRequest) -> Play:
    return Play(etcd, cluster, kube, request.param)


@pytest.mark.timeout(600)
async def test_scaling_comes_to_the_same_end_whenever_its_leader_dies(play: Play) -> None:
    expected, machines, cloud, died = await play.run()
    assert not died
    assert machines
    assert cloud.created == len(machines)
    assert cloud.sent >= 7
    for requests in range(cloud.sent):
        found = await play.run(effects=requests)
        assert (found[0], found[1], found[2].created) == (expected, machines, cloud.created), f"{requests} requests"
        assert found[3]
    for writes in itertools.count():
        found = await play.run(writes=writes)
        assert (found[0], found[1], found[2].created) == (expected, machines, cloud.created), f"{writes} writes"
        if not found[3]:
            break
    assert writes >= 5
