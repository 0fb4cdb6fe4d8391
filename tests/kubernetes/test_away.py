"""A cluster whose API stays away is given up after its grace time; when it comes back, what is stale goes first."""

from __future__ import annotations

from pathlib import Path

from tests.kubernetes.faulty import faulty
from tests.kubernetes.kubelet import Cluster, Kubelet, busy_node, recorded
from tests.kubernetes.server import KubeServer
from tests.kubernetes.stage import (
    ALONE,
    add_cluster,
    begun,
    ends,
    fulfilment_of,
    kept,
    submit,
    until_final,
    until_ready,
)
from tests.robustness.world import a_world

QUICK = ("--request-timeout", "1s", "--away", "2s")


async def test_its_work_is_given_away_and_stale_pods_go_before_anything_new_starts(
    tmp_path: Path, kube: KubeServer, cluster: Cluster
) -> None:
    await cluster.add_namespace("away")
    await cluster.add_node("node-1")
    kubelet = Kubelet(cluster, namespace="away")
    async with a_world(tmp_path, ALONE) as world, faulty(kube) as proxy, recorded(cluster, "away") as history:
        add_cluster(world, "kube-1", proxy.kubeconfig(tmp_path), namespace="away", flags=QUICK)
        await until_ready(world, "kube-1")
        order = await submit(world)
        await history.until(lambda seen: len(seen.newest) == 1)
        (stale,) = history.newest.values()
        await kubelet.run(stale)
        await world.witness.until(lambda: world.witness.phases.get(order) == "Running", "it runs")

        await proxy.away()
        await world.witness.until(lambda: world.witness.targets.get("kube-1") == "Failed", "the target is given up")
        await world.witness.until(lambda: len(ends(world, order)) == 1, "its attempt is given back")
        assert [task.reason for _, task in ends(world, order)] == ["TargetLost"]

        await proxy.open()
        await history.until(lambda seen: any(pod["metadata"].get("deletionTimestamp") for pod in seen.newest.values()))
        # The node takes its time, and nothing new comes while the old one may still run.
        assert [fulfilment for fulfilment, _ in history.made] == [fulfilment_of(stale)]
        assert world.witness.targets.get("kube-1") != "Ready"
        await kubelet.remove(stale)
        await history.until(lambda seen: len(seen.made) == 2)
        (fresh,) = history.newest.values()
        await kubelet.run(fresh)
        await kubelet.finish(fresh)
        assert await until_final(world, order) == ["Succeeded"]
        assert history.made_twice() == set()
        await kept(world, order)


async def test_a_short_absence_does_not_matter(tmp_path: Path, kube: KubeServer, cluster: Cluster) -> None:
    await cluster.add_namespace("short")
    async with (
        a_world(tmp_path, ALONE) as world,
        faulty(kube) as proxy,
        busy_node(cluster, namespace="short") as history,
    ):
        add_cluster(world, "kube-1", proxy.kubeconfig(tmp_path), namespace="short", flags=("--request-timeout", "1s"))
        await until_ready(world, "kube-1")
        await proxy.away()
        order = await submit(world, count=3)
        await world.witness.until(lambda: len(begun(world, "kube-1")) == 3, "it still speaks")
        assert history.made == []
        await proxy.open()
        assert await until_final(world, order) == ["Succeeded"]
        assert [task.attempt for _, task in ends(world, order)] == [1, 1, 1]
        assert history.made_twice() == set()
        await kept(world, order)
