"""F15 for clusters: a joblet is killed, or cut off until its work was given to another; pods come and go behind it."""

from __future__ import annotations

from contextlib import AsyncExitStack
from pathlib import Path

from tests.kubernetes.kubelet import Cluster, Kubelet, busy_node, recorded
from tests.kubernetes.server import KubeServer
from tests.kubernetes.stage import (
    ALONE,
    PATIENT,
    add_cluster,
    ends,
    fulfilment_of,
    kept,
    submit,
    until_final,
    until_ready,
)
from tests.robustness.link import linked
from tests.robustness.world import UNIQUE, World, a_world

QUICK = ("--request-timeout", "1s")


async def runs(world: World, order: str) -> None:
    await world.witness.until(lambda: world.witness.phases.get(order) == "Running", "it runs")


async def test_a_killed_joblet_adopts_its_pods_and_hears_what_ended_meanwhile(
    tmp_path: Path, kube: KubeServer, cluster: Cluster
) -> None:
    await cluster.add_namespace("adopts")
    await cluster.add_node("node-1")
    kubelet = Kubelet(cluster, namespace="adopts")
    async with a_world(tmp_path, PATIENT) as world, recorded(cluster, "adopts") as history:
        joblet = add_cluster(world, "kube-1", kube.kubeconfig, namespace="adopts", flags=QUICK)
        await until_ready(world, "kube-1")
        order = await submit(world, count=2)
        await history.until(lambda seen: len(seen.newest) == 2)
        first, second = history.newest.values()
        await kubelet.run(first)
        await kubelet.run(second)
        await runs(world, order)
        joblet.kill()
        await kubelet.finish(first, message="s3://made/meanwhile")
        joblet.start()
        await world.witness.until(lambda: len(ends(world, order)) == 1, "the one that ended is reported")
        await kubelet.finish(second)
        assert await until_final(world, order) == ["Succeeded"]
        assert [task.attempt for _, task in ends(world, order)] == [1, 1]
        assert {task.artefacts for _, task in ends(world, order)} == {("s3://made/meanwhile",), ()}
        assert len(history.made) == 2


async def test_one_that_was_cut_off_removes_what_was_given_to_another(
    tmp_path: Path, kube: KubeServer, cluster: Cluster
) -> None:
    for namespace in ("cut-1", "cut-2"):
        await cluster.add_namespace(namespace)
    await cluster.add_node("node-1")
    kubelet = Kubelet(cluster, namespace="cut-1")
    async with AsyncExitStack() as stack:
        world = await stack.enter_async_context(a_world(tmp_path, ALONE))
        link = await stack.enter_async_context(linked(world.endpoints[0]))
        old = await stack.enter_async_context(recorded(cluster, "cut-1"))
        await stack.enter_async_context(busy_node(cluster, namespace="cut-2"))
        add_cluster(world, "kube-1", kube.kubeconfig, namespace="cut-1", flags=QUICK, endpoints=[link.address])
        await until_ready(world, "kube-1")
        order = await submit(world)
        await old.until(lambda seen: len(seen.newest) == 1)
        (stale,) = old.newest.values()
        await kubelet.run(stale)
        await runs(world, order)
        add_cluster(world, "kube-2", kube.kubeconfig, namespace="cut-2", flags=QUICK)
        await until_ready(world, "kube-2")

        link.hold()
        assert await until_final(world, order) == ["Succeeded"]
        assert [(target, task.reason) for target, task in ends(world, order) if task.attempt == 1] == [
            ("kube-1", "TargetLost")
        ]
        assert list(old.newest) == [stale["metadata"]["uid"]], "nobody could tell it to stop"
        link.release()
        await old.until(lambda seen: any(pod["metadata"].get("deletionTimestamp") for pod in seen.newest.values()))
        await kubelet.remove(stale)
        await until_ready(world, "kube-1")
        assert old.made_twice() == set()
        await kept(world, order)


async def test_a_pod_that_somebody_deletes_is_lost_and_tried_again(
    tmp_path: Path, kube: KubeServer, cluster: Cluster
) -> None:
    await cluster.add_namespace("vanish")
    await cluster.add_node("node-1")
    kubelet = Kubelet(cluster, namespace="vanish")
    async with a_world(tmp_path, PATIENT) as world, recorded(cluster, "vanish") as history:
        joblet = add_cluster(world, "kube-1", kube.kubeconfig, namespace="vanish", flags=QUICK)
        await until_ready(world, "kube-1")
        order = await submit(world)
        await history.until(lambda seen: len(seen.newest) == 1)
        (pod,) = history.newest.values()
        await kubelet.run(pod)
        await runs(world, order)
        await kubelet.remove(pod)
        await history.until(lambda seen: len(seen.made) == 2)
        # The same while nobody looks.
        (pod,) = history.newest.values()
        await kubelet.run(pod)
        await world.witness.until(lambda: reported(world, "Running", pod), "the second attempt runs")
        joblet.kill()
        await kubelet.remove(pod)
        joblet.start()
        await history.until(lambda seen: len(seen.made) == 3)
        (pod,) = history.newest.values()
        await kubelet.run(pod)
        await kubelet.finish(pod)
        assert await until_final(world, order) == ["Succeeded"]
        reasons = [task.reason for _, task in sorted(ends(world, order), key=lambda end: end[1].attempt)]
        assert reasons == ["Lost", "Lost", ""]
        assert history.made_twice() == set()
        await kept(world, order)


async def test_a_cancelled_order_ends_when_its_pod_is_gone_and_orphans_go(
    tmp_path: Path, kube: KubeServer, cluster: Cluster
) -> None:
    await cluster.add_namespace("cancel")
    await cluster.add_node("node-1")
    kubelet = Kubelet(cluster, namespace="cancel")
    async with a_world(tmp_path, ALONE) as world, recorded(cluster, "cancel") as history:
        add_cluster(world, "kube-1", kube.kubeconfig, namespace="cancel", flags=QUICK)
        await until_ready(world, "kube-1")
        order = await submit(world, unique=UNIQUE[0])
        await history.until(lambda seen: len(seen.newest) == 1)
        (pod,) = history.newest.values()
        await kubelet.run(pod)
        await runs(world, order)
        await world.client.orders.cancel(order)
        await history.until(lambda seen: any(it["metadata"].get("deletionTimestamp") for it in seen.newest.values()))
        assert "/controlplane/claims/" + UNIQUE[0] in world.witness.values, "it is held while the pod may run"
        await kubelet.remove(pod)
        assert await until_final(world, order) == ["Cancelled"]
        ((_, end),) = ends(world, order)
        assert (end.phase, end.reason) == ("Cancelled", "Cancelled")
        # One of ours that nobody desires, made by whom ever.
        orphan = {**pod, "status": {}, "metadata": {**pod["metadata"], "name": "orphan"}}
        for key in ("uid", "resourceVersion", "creationTimestamp", "deletionTimestamp", "managedFields"):
            orphan["metadata"].pop(key, None)
        orphan["spec"] = {**pod["spec"], "nodeName": None}
        await cluster.ask("POST", "/api/v1/namespaces/cancel/pods", orphan)
        await history.until(lambda seen: len(seen.made) == 2 and not seen.newest)


def reported(world: World, phase: str, pod: dict[str, object]) -> bool:
    value = world.witness.values.get(f"/controlplane/inventory/kube-1/{fulfilment_of(pod)}")
    return value is not None and f'"phase":"{phase}"'.encode() in value.value
