"""How much room a cluster has, as its target shows it, kept current while the joblet is connected."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from controlplane.model.target import Live
from controlplane.store import codec
from tests.kubernetes.conftest import binary_or_skip
from tests.kubernetes.kubelet import Cluster, Json, Kubelet, terminated
from tests.kubernetes.server import KubeServer, running_server
from tests.kubernetes.stage import ALONE, add_cluster, until_ready
from tests.robustness.world import World, a_world


@pytest.fixture
def own_kube(tmp_path: Path) -> Iterator[KubeServer]:
    """Nobody else's nodes and pods."""
    with running_server(binary_or_skip(), tmp_path / "kube") as server:
        yield server


def room(world: World) -> tuple[float, float]:
    """(cpu, memory in GiB) of the live record; negative while there is none."""
    value = world.witness.values.get("/controlplane/inventory/kube-1/live")
    if value is None:
        return (-1, -1)
    capacity = codec.decode(value.value, Live).capacity
    return capacity["cpu"], capacity["memory"] / 2**30


async def until_room(world: World, cpu: float, memory: float) -> None:
    await world.witness.until(lambda: room(world) == (cpu, memory), f"there is room for cpu {cpu}, memory {memory} Gi")


async def test_nodes_and_other_peoples_pods_change_the_room_at_once(tmp_path: Path, own_kube: KubeServer) -> None:
    async with Cluster(own_kube) as cluster, a_world(tmp_path, ALONE) as world:
        await cluster.add_node("node-1", cpu="4", memory="8Gi")
        add_cluster(world, "kube-1", own_kube.kubeconfig, flags=("--capacity", "cpu=10,power=50"))
        await until_ready(world, "kube-1")
        await until_room(world, 4, 8)

        kubelet = Kubelet(cluster)
        pod = await cluster.ask("POST", "/api/v1/namespaces/default/pods", foreign(cpu="1500m", memory="2Gi"))
        await kubelet.run(pod)
        await until_room(world, 2.5, 6)
        await kubelet.set_states(pod, "Succeeded", {"one": terminated(0)})
        await until_room(world, 4, 8)

        await cluster.add_node("node-2", cpu="8", memory="8Gi")
        await until_room(world, 10, 16)
        await cluster.ask("PATCH", "/api/v1/nodes/node-1", {"spec": {"unschedulable": True}})
        await until_room(world, 8, 8)
        live = codec.decode(world.witness.values["/controlplane/inventory/kube-1/live"].value, Live)
        assert live.capacity["power"] == 50


def foreign(**requests: str) -> Json:
    container = {"name": "one", "image": "none", "resources": {"requests": requests}}
    return {"metadata": {"name": "foreign"}, "spec": {"containers": [container]}}
