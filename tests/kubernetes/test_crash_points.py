"""Leader and joblet die between placing, creating and reporting: no attempt ever gets a second pod."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from tests.kubernetes.kubelet import Cluster, busy_node
from tests.kubernetes.server import KubeServer
from tests.kubernetes.stage import ALONE, add_cluster, ends, kept, submit, until_final, until_ready
from tests.robustness.patience import until
from tests.robustness.world import a_world

JOBLET = ("joblet.before-start", "joblet.before-create", "joblet.after-create", "joblet.after-start")
LEADER = ("scheduler.before-commit", "scheduler.after-commit")


@pytest.mark.parametrize("point", JOBLET)
async def test_a_joblet_that_dies_makes_no_second_pod(
    point: str, tmp_path: Path, kube: KubeServer, cluster: Cluster
) -> None:
    namespace = point.replace(".", "-")
    await cluster.add_namespace(namespace)
    armed = tmp_path / "armed"
    plan = replace(ALONE, own_environment={"kube-1": {"CONTROLPLANE_FAILPOINTS": f"{point}=crash@{armed}"}})
    async with a_world(tmp_path, plan) as world, busy_node(cluster, namespace=namespace) as history:
        joblet = add_cluster(world, "kube-1", kube.kubeconfig, namespace=namespace, flags=("--request-timeout", "1s"))
        await until_ready(world, "kube-1")
        armed.touch()
        order = await submit(world, count=4)
        await until(lambda: not joblet.running, "the joblet died at the point")
        joblet.start()
        assert await until_final(world, order) == ["Succeeded"]
        assert history.made_twice() == set()
        await kept(world, order)
        assert not armed.exists()
        attempts = [(task.index, task.attempt) for _, task in ends(world, order)]
        assert len(attempts) == len(set(attempts))


@pytest.mark.parametrize("point", LEADER)
async def test_a_leader_that_dies_makes_no_second_pod(
    point: str, tmp_path: Path, kube: KubeServer, cluster: Cluster
) -> None:
    namespace = point.replace(".", "-")
    await cluster.add_namespace(namespace)
    armed = tmp_path / "armed"
    plan = replace(ALONE, replicas=2, environment={"CONTROLPLANE_FAILPOINTS": f"{point}=crash@{armed}"})
    async with a_world(tmp_path, plan) as world, busy_node(cluster, namespace=namespace) as history:
        add_cluster(world, "kube-1", kube.kubeconfig, namespace=namespace, flags=("--request-timeout", "1s"))
        await until_ready(world, "kube-1")
        leader = world.leader
        armed.touch()
        order = await submit(world, count=4)
        await until(lambda: not leader.running, "the leader died at the point")
        assert await until_final(world, order) == ["Succeeded"]
        await asyncio.to_thread(leader.start)
        assert history.made_twice() == set()
        await kept(world, order)
        assert len(history.made) == len({fulfilment for fulfilment, _ in history.made})
