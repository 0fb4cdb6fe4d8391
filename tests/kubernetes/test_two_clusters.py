"""Two clusters, each with an API server of its own."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from controlplane.wire.v1 import jobs_pb2, orders_pb2, packets_pb2
from tests.kubernetes.kubelet import Cluster, Json, busy_node
from tests.kubernetes.server import KubeServer
from tests.kubernetes.stage import ALONE, add_cluster, ends, submit, until_final, until_ready
from tests.robustness.world import World, a_world


@pytest.fixture
async def second(second_kube: KubeServer) -> AsyncIterator[Cluster]:
    async with Cluster(second_kube) as administrator:
        yield administrator


async def test_an_order_spreads_runs_to_its_end_and_goes_where_it_is_told(
    tmp_path: Path, kube: KubeServer, second_kube: KubeServer, cluster: Cluster, second: Cluster
) -> None:
    await cluster.add_namespace("two")
    await second.add_namespace("two")
    async with (
        a_world(tmp_path, ALONE) as world,
        busy_node(
            cluster, namespace="two", message_of=lambda pod: f"https://results/{pod['metadata']['name']}"
        ) as here,
        busy_node(
            second, namespace="two", message_of=lambda pod: f"https://results/{pod['metadata']['name']}"
        ) as there,
    ):
        add_cluster(world, "eu-1", kube.kubeconfig, namespace="two")
        add_cluster(world, "us-1", second_kube.kubeconfig, namespace="two")
        await until_ready(world, "eu-1", "us-1")

        spread = await submit(world, count=20)
        strict = await submit(world, count=3, target="us-1")
        override = await submit_overridden(world, job="strict:eu-1", order="strict:us-1")
        assert await until_final(world, spread, strict, override) == ["Succeeded"] * 3

        where = Counter(target for target, _ in ends(world, spread))
        assert sum(where.values()) == 20
        assert set(where) == {"eu-1", "us-1"}, "it spreads"
        assert {target for target, _ in ends(world, strict)} == {"us-1"}
        assert {target for target, _ in ends(world, override)} == {"us-1"}, "the order's policy overrides the job's"
        for _, task in ends(world, spread):
            assert (task.phase, task.exit_code, task.attempt) == ("Succeeded", 0, 1)
            assert len(task.artefacts) == 1
            assert task.artefacts[0].startswith("https://results/cp-")
        assert len({task.artefacts for _, task in ends(world, spread)}) == 20
        assert len(here.made) == where["eu-1"]
        assert len(there.made) == where["us-1"] + 3 + 1


def result_of(pod: Json) -> str:
    return f"https://results/{pod['metadata']['name']}"


async def submit_overridden(world: World, *, job: str, order: str) -> str:
    made = jobs_pb2.Job(image="registry.example/none:1", command=["run"], target_policy=job)
    packet = packets_pb2.Packet(jobs=[packets_pb2.PacketJob(job=packets_pb2.JobRef(object=made), count=1)])
    asked = orders_pb2.Order(
        id=world.client.mint.make(), packet=orders_pb2.PacketRef(object=packet), target_policy=order
    )
    await world.client.orders.submit(asked)
    return asked.id
