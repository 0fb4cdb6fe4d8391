"""Orders that run as pods."""

from __future__ import annotations

from pathlib import Path

from tests.kubernetes.kubelet import Cluster, busy_node
from tests.kubernetes.server import KubeServer
from tests.kubernetes.stage import ALONE, add_cluster, ends, submit, until_final, until_ready
from tests.robustness.world import a_world


async def test_an_order_runs_as_a_pod(tmp_path: Path, kube: KubeServer, cluster: Cluster) -> None:
    await cluster.add_namespace("one")
    async with (
        a_world(tmp_path, ALONE) as world,
        busy_node(cluster, namespace="one", message_of=lambda pod: "s3://bucket/result") as history,
    ):
        add_cluster(world, "kube-1", kube.kubeconfig, namespace="one")
        await until_ready(world, "kube-1")
        order = await submit(world)
        assert await until_final(world, order) == ["Succeeded"]
        ((target, end),) = ends(world, order)
        assert (target, end.phase, end.exit_code, end.artefacts) == ("kube-1", "Succeeded", 0, ("s3://bucket/result",))
        assert len(history.made) == 1
