"""Many pods on one API server: none of them is polled, and the requests are counted."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.fault_reports import Tell
from tests.kubernetes.faulty import faulty
from tests.kubernetes.kubelet import Cluster, busy_node
from tests.kubernetes.server import KubeServer
from tests.kubernetes.stage import PATIENT, add_cluster, submit, until_final, until_ready
from tests.robustness.world import a_world

# One create and one delete of each; what is watched costs no more for many than for one.
A_POD = 2
WATCHES = 20


@pytest.mark.timeout(600)
@pytest.mark.parametrize("count", [60, pytest.param(1000, marks=pytest.mark.long)])
async def test_a_pod_costs_a_create_and_a_delete(
    count: int, tmp_path: Path, kube: KubeServer, cluster: Cluster, tell: Tell
) -> None:
    namespace = f"many-{count}"
    await cluster.add_namespace(namespace)
    async with (
        a_world(tmp_path, PATIENT) as world,
        faulty(kube) as proxy,
        busy_node(cluster, namespace=namespace) as history,
    ):
        await cluster.add_node("node-1", cpu="2000", pods="5000")
        flags = ("--request-timeout", "5s", "--tombstone", "20s")
        add_cluster(world, "kube-1", proxy.kubeconfig(tmp_path), namespace=namespace, flags=flags)
        await until_ready(world, "kube-1")
        order = await submit(world, count=count)
        assert await until_final(world, order, seconds=400) == ["Succeeded"]
        await history.until(lambda seen: len(seen.made) == count and not seen.newest, 300)
        assert history.made_twice() == set()
        asked = sum(proxy.requests.values())
        tell(f"{asked / count:.2f} requests a pod: {dict(proxy.requests)}, of nodes and others {dict(proxy.others)}")
        assert proxy.requests["create"] == proxy.requests["delete"] == count, dict(proxy.requests)
        assert proxy.requests["get"] == 0, "no pod is asked for by its name"
        assert asked <= A_POD * count + WATCHES, dict(proxy.requests)
