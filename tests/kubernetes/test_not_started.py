"""Pods that do not start, or do not stop, as real nodes have them: what people are told, and how soon it is over."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from controlplane.model.errors import NotFound
from controlplane.model.event import Event
from controlplane.model.explanation import Explanation
from controlplane.store import codec
from controlplane.wire import convert
from controlplane.wire.v1 import logs_pb2, orders_pb2
from tests.kubernetes.kubelet import PATIENCE_SECONDS, Cluster, Kubelet, busy_node
from tests.kubernetes.server import KubeServer
from tests.kubernetes.stage import ALONE, add_cluster, ends, submit, until_final, until_ready
from tests.kubernetes.test_hosting import a_plan, apply
from tests.robustness.world import World, a_world

TARGET = "kube-1"
NOT_ROOT = "container has runAsNonRoot and image will run as root"
REFUSED = "connect: connection refused"


async def task_of(world: World, order: str, holds: Callable[[orders_pb2.Task], bool]) -> Any:
    """The order's first task, as anybody reads it, once it is so."""
    async with asyncio.timeout(PATIENCE_SECONDS):
        while not holds(task := (await world.client.orders.get(order)).tasks[0]):
            await asyncio.sleep(0.05)
    return task


def told(world: World, order: str) -> list[str]:
    """The messages of the order's events."""
    found = [value for key, value in world.witness.values.items() if key.startswith("/controlplane/events/")]
    events = [codec.decode(value.value, Event) for value in found]
    return [event.message for event in events if event.about.name == order]


async def test_an_image_that_runs_as_root_fails_at_once_and_names_what_helps(
    tmp_path: Path, kube: KubeServer, cluster: Cluster
) -> None:
    await cluster.add_namespace("root")
    async with (
        a_world(tmp_path, ALONE) as world,
        busy_node(cluster, namespace="root", start=Kubelet.refuse_root),
    ):
        # With the patience of five minutes it would not end within the patience of the test.
        add_cluster(world, TARGET, kube.kubeconfig, namespace="root")
        await until_ready(world, TARGET)
        order = await submit(world)
        assert await until_final(world, order) == ["Failed"]
        task = (await world.client.orders.get(order)).tasks[0]
        assert (task.phase, task.reason) == ("Failed", "StartError")
        assert NOT_ROOT in task.message
        assert "--security baseline" in task.message
        with pytest.raises(NotFound, match=f"could not be started on target {TARGET}: StartError: .*runAsNonRoot"):
            async for _ in world.client.orders.logs(logs_pb2.LogsRequest(id=order)):
                pass


async def test_a_command_that_is_not_there_says_so_and_never_began(
    tmp_path: Path, kube: KubeServer, cluster: Cluster
) -> None:
    await cluster.add_namespace("nothing")
    async with (
        a_world(tmp_path, ALONE) as world,
        busy_node(cluster, namespace="nothing", start=Kubelet.fail_to_start),
    ):
        add_cluster(world, TARGET, kube.kubeconfig, namespace="nothing")
        await until_ready(world, TARGET)
        order = await submit(world)
        assert await until_final(world, order) == ["Failed"]
        cause = 'exec: "run": executable file not found in $PATH'
        ((_, end),) = ends(world, order)
        assert (end.reason, end.started, end.exit_code) == ("StartError", "", None)
        assert cause in end.message
        assert cause in (await world.client.orders.get(order)).tasks[0].message
        await world.witness.until(lambda: any(cause in message for message in told(world, order)), "an event tells")


async def test_a_pod_whose_image_cannot_be_had_says_why_wherever_it_is_asked(
    tmp_path: Path, kube: KubeServer, cluster: Cluster
) -> None:
    await cluster.add_namespace("imageless")
    async with (
        a_world(tmp_path, ALONE) as world,
        busy_node(cluster, namespace="imageless", start=Kubelet.refuse_image),
    ):
        add_cluster(world, TARGET, kube.kubeconfig, namespace="imageless")
        await until_ready(world, TARGET)
        order = await submit(world)
        task = await task_of(world, order, lambda task: task.HasField("message"))
        assert (task.phase, task.reason) == ("Placed", "ImageError")
        assert task.message.endswith(REFUSED)
        found = convert.to_model(await world.client.orders.explain(order), Explanation)
        assert found.conclusion.startswith(f"1 task is placed and does not start: on {TARGET}, ImageError: ")
        assert REFUSED in found.conclusion
        with pytest.raises(NotFound, match=f"has not started yet: it is placed on target {TARGET}: .*{REFUSED}"):
            async for _ in world.client.orders.logs(logs_pb2.LogsRequest(id=order)):
                pass
        await world.client.orders.cancel(order)
        assert await until_final(world, order) == ["Cancelled"]


async def test_a_hosted_cluster_is_told_its_security_and_grace(
    tmp_path: Path, kube: KubeServer, cluster: Cluster
) -> None:
    await cluster.add_namespace("told")
    async with (
        a_world(tmp_path, a_plan(tmp_path, replicas=1)) as world,
        busy_node(cluster, namespace="told", start=Kubelet.refuse_root) as history,
    ):
        await apply(world, kube, "told", TARGET, security="baseline", stop_grace=7)
        await until_ready(world, TARGET)
        order = await submit(world)
        await history.until(lambda seen: bool(seen.made))
        spec = next(iter(history.newest.values()))["spec"]
        assert "runAsNonRoot" not in spec["securityContext"]
        assert spec["terminationGracePeriodSeconds"] == 7
        assert await until_final(world, order) == ["Succeeded"]


async def test_a_stop_takes_no_longer_than_the_grace_where_nobody_hears_sigterm(
    tmp_path: Path, kube: KubeServer, cluster: Cluster
) -> None:
    await cluster.add_namespace("deaf")
    async with (
        a_world(tmp_path, ALONE) as world,
        busy_node(cluster, namespace="deaf", stop=Kubelet.kill_after_grace, finishes=False) as history,
    ):
        add_cluster(world, TARGET, kube.kubeconfig, namespace="deaf", flags=["--grace", "2s"])
        await until_ready(world, TARGET)
        order = await submit(world)
        await task_of(world, order, lambda task: task.phase == "Running")
        graces: list[int] = []
        with history.told(lambda event: graces.append(event["object"]["metadata"].get("deletionGracePeriodSeconds"))):
            await world.client.orders.cancel(order)
            assert await until_final(world, order) == ["Cancelled"]
        assert set(filter(None, graces)) == {2}
