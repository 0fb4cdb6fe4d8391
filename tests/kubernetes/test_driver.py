"""The driver alone, on a real API server: when a pod is made, when it is not, and what is seen of it."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from pathlib import Path

import pytest

from controlplane.aio.clock import SystemClock
from controlplane.aio.failpoint import NONE
from controlplane.joblet.attempt_records import AttemptRecords
from controlplane.joblet.drivers.kubernetes.api import connect
from controlplane.joblet.drivers.kubernetes.container_logs import ClusterLogs
from controlplane.joblet.drivers.kubernetes.journal import Journal, intent_of
from controlplane.joblet.drivers.kubernetes.kubernetes_driver import KubernetesDriver
from controlplane.joblet.drivers.kubernetes.pod import PodDefaults, name_of, pod_of
from controlplane.joblet.drivers.kubernetes.pod_supervisor import ClusterTimes
from controlplane.joblet.joblet_state import JobletFolder, read_boot
from controlplane.model.fulfilment import Fulfilment, ObservedTask, TaskRef, TaskSpec
from controlplane.model.identity import Mint
from tests.kubernetes.kubelet import PATIENCE_SECONDS, Cluster, Json, Kubelet, terminated
from tests.kubernetes.server import KubeServer

CLOCK = SystemClock()
MINT = Mint(lambda: 1_700_000_000_000, lambda size: bytes(range(size)))
NAMESPACE = "alone"
PLACE = PodDefaults(namespace=NAMESPACE)
REQUEST_SECONDS = 1.0
FOR_EVER = 1e6


class Stage:
    """One driver in a folder, that may die and live again."""

    def __init__(self, folder: Path, server: KubeServer, target: str) -> None:
        self._folder = folder
        self._server = server
        self.target = target
        self.changed = asyncio.Event()

    @contextlib.asynccontextmanager
    async def life(
        self, *, confirmed: bool = True, start: float = 60.0, in_view: bool = True
    ) -> AsyncIterator[KubernetesDriver]:
        """Begins when the cluster is in view; or before it is, with nothing known but what the folder tells."""
        state = JobletFolder(self._folder, read_boot())
        records = AttemptRecords(self._folder, boot=state.boot, clock=CLOCK)
        api = await connect(str(self._server.kubeconfig), seconds=REQUEST_SECONDS)
        times = ClusterTimes(tombstone=4.0, start=start)
        driver = KubernetesDriver(
            self.target,
            api,
            PLACE,
            state,
            records,
            clock=CLOCK,
            times=times,
            failpoints=NONE,
            logs=ClusterLogs(api, PLACE.namespace).open,
        )
        driver.attach(lambda identity: self.changed.set())
        self.state = state
        if confirmed:
            state.confirm(CLOCK.monotonic(), FOR_EVER)
        running = asyncio.create_task(driver.run())
        try:
            if in_view:
                async with asyncio.timeout(PATIENCE_SECONDS):
                    await driver.gate.opened()
            else:
                await asyncio.sleep(0)
            yield driver
        finally:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)
            await api.close()
            records.close()
            state.close()

    async def until(self, holds: Callable[[], object]) -> None:
        async with asyncio.timeout(PATIENCE_SECONDS):
            while not holds():
                self.changed.clear()
                await self.changed.wait()


@pytest.fixture
async def stage(tmp_path: Path, kube: KubeServer, cluster: Cluster, request: pytest.FixtureRequest) -> Stage:
    await cluster.add_namespace(NAMESPACE)
    await cluster.add_node("node-1")
    target = request.node.name.removeprefix("test_").replace("_", "-")[:40].rstrip("-")
    return Stage(tmp_path, kube, target)


def a_fulfilment(target: str, *, tasks: int = 1, image: str = "registry.example/none:1") -> Fulfilment:
    refs = tuple(TaskRef(job="render", index=index, attempt=1) for index in range(tasks))
    return Fulfilment(
        id=MINT.make(),
        epoch=1,
        cycle=1,
        order=MINT.make(),
        target=target,
        tasks=refs,
        jobs={"render": TaskSpec(command=("run",), image=image, requests={"cpu": 1})},
    )


def start(driver: KubernetesDriver, fulfilment: Fulfilment) -> None:
    for task in fulfilment.tasks:
        driver.start(fulfilment, task)


def seen(driver: KubernetesDriver, fulfilment: Fulfilment) -> list[ObservedTask]:
    found = driver.seen(fulfilment.id)
    return [found[task] for task in fulfilment.tasks if task in found]


async def pods_of(cluster: Cluster, fulfilment: Fulfilment) -> list[Json]:
    return await cluster.pods(NAMESPACE, f"controlplane/fulfilment={fulfilment.id}")


async def test_tasks_that_start_together_are_one_pod_and_keep_their_own_ends(stage: Stage, cluster: Cluster) -> None:
    kubelet = Kubelet(cluster, namespace=NAMESPACE)
    async with stage.life() as driver:
        fulfilment = a_fulfilment(stage.target, tasks=3)
        start(driver, fulfilment)
        await stage.until(lambda: driver.capacity.now and all(task.phase for task in seen(driver, fulfilment)))
        async with asyncio.timeout(PATIENCE_SECONDS):
            while not (pods := await pods_of(cluster, fulfilment)):
                await asyncio.sleep(0.01)
        (pod,) = pods
        states = {"task-0": terminated(0), "task-1": terminated(3), "task-2": {"running": {}}}
        await kubelet.bind(pod)
        await kubelet.set_states(pod, "Running", states)
        await stage.until(
            lambda: [task.phase for task in seen(driver, fulfilment)] == ["Succeeded", "Failed", "Running"]
        )
        assert [task.exit_code for task in seen(driver, fulfilment)] == [0, 3, None]
        assert driver.running() == 1


async def test_nothing_is_made_while_the_session_is_not_confirmed(stage: Stage, cluster: Cluster) -> None:
    async with stage.life(confirmed=False) as driver:
        waits, goes = a_fulfilment(stage.target), a_fulfilment(stage.target)
        start(driver, waits)
        # Time enough for another one to be made and seen.
        other = a_fulfilment(stage.target)
        await cluster.ask("POST", f"/api/v1/namespaces/{NAMESPACE}/pods", pod_of(other, PLACE))
        await stage.until(lambda: other.id in driver.fulfilments())
        assert await pods_of(cluster, waits) == []
        driver.drop(waits.id)
        assert driver.dying() == 0, "it was never asked for"
        start(driver, goes)
        stage.state.confirm(CLOCK.monotonic(), FOR_EVER)
        async with asyncio.timeout(PATIENCE_SECONDS):
            while not await pods_of(cluster, goes):
                await asyncio.sleep(0.01)
        assert await pods_of(cluster, waits) == []


async def test_an_intent_of_a_former_life_without_a_pod_is_lost_and_never_made(
    stage: Stage, cluster: Cluster, tmp_path: Path
) -> None:
    fulfilment = a_fulfilment(stage.target)
    Journal(tmp_path).write(intent_of(fulfilment, files=False))
    async with stage.life(in_view=False) as driver:
        assert [task.phase for task in seen(driver, fulfilment)] == ["Starting"]
        assert driver.busy(), "it may still come"
        await stage.until(lambda: seen(driver, fulfilment)[0].phase == "Failed")
        assert seen(driver, fulfilment)[0].reason == "Lost"
        assert await pods_of(cluster, fulfilment) == []
        driver.drop(fulfilment.id)
        assert list(Journal(tmp_path).all()) == []


async def test_a_pod_that_is_there_already_is_its_own_or_somebody_elses(stage: Stage, cluster: Cluster) -> None:
    async with stage.life() as driver:
        own, taken = a_fulfilment(stage.target), a_fulfilment(stage.target)
        path = f"/api/v1/namespaces/{NAMESPACE}/pods"
        foreign = {"metadata": {"name": name_of(taken.id)}, "spec": {"containers": [{"name": "one", "image": "none"}]}}
        await cluster.ask("POST", path, foreign)
        start(driver, taken)
        await stage.until(lambda: seen(driver, taken)[0].phase == "Failed")
        assert seen(driver, taken)[0].reason == "StartError"
        # Of a create whose answer was lost, say.
        made = await cluster.ask("POST", path, pod_of(own, PLACE))
        await stage.until(lambda: own.id in driver.fulfilments())
        assert [task.phase for task in seen(driver, own)] == ["Starting"]
        (pod,) = await pods_of(cluster, own)
        assert pod["metadata"] == made["metadata"]


async def test_pods_of_another_plane_with_a_target_of_that_name_are_left_alone(stage: Stage, cluster: Cluster) -> None:
    """Those without a label, of an earlier version, are adopted."""
    path = f"/api/v1/namespaces/{NAMESPACE}/pods"
    theirs, older, ours, new = (a_fulfilment(stage.target) for _ in range(4))
    async with stage.life() as driver:
        stage.state.bind_to_cluster("1234567890abcdef")
        await cluster.ask("POST", path, pod_of(theirs, replace(PLACE, cluster="fedcba0987654321")))
        await cluster.ask("POST", path, pod_of(older, PLACE))
        await cluster.ask("POST", path, pod_of(ours, replace(PLACE, cluster="1234567890abcdef")))
        await stage.until(lambda: ours.id in driver.fulfilments())
        assert older.id in driver.fulfilments()
        assert theirs.id not in driver.fulfilments()
        start(driver, new)
        await stage.until(lambda: seen(driver, new)[0].phase == "Starting")
        async with asyncio.timeout(PATIENCE_SECONDS):
            while not (pods := await pods_of(cluster, new)):
                await asyncio.sleep(0.01)
        assert pods[0]["metadata"]["labels"]["controlplane/cluster"] == "1234567890abcdef"
        assert await pods_of(cluster, theirs)
    async with stage.life() as driver:
        await stage.until(lambda: ours.id in driver.fulfilments())
        assert theirs.id not in driver.fulfilments()


async def test_what_the_api_refuses_and_what_cannot_start_fails(stage: Stage, cluster: Cluster) -> None:
    kubelet = Kubelet(cluster, namespace=NAMESPACE)
    async with stage.life(start=0.5) as driver:
        nameless, imageless = a_fulfilment(stage.target, image=""), a_fulfilment(stage.target)
        start(driver, nameless)
        await stage.until(lambda: seen(driver, nameless)[0].phase == "Failed")
        assert "image" in seen(driver, nameless)[0].message
        start(driver, imageless)
        async with asyncio.timeout(PATIENCE_SECONDS):
            while not (pods := await pods_of(cluster, imageless)):
                await asyncio.sleep(0.01)
        (pod,) = pods
        await kubelet.bind(pod)
        waiting = {"waiting": {"reason": "ImagePullBackOff", "message": "no such image"}}
        await kubelet.set_status(pod, "Pending", waiting)
        async with asyncio.timeout(PATIENCE_SECONDS):
            while not (await pods_of(cluster, imageless))[0]["metadata"].get("deletionTimestamp"):
                await asyncio.sleep(0.01)
        assert seen(driver, imageless)[0].phase == "Starting", "it has ended when its pod is gone"
        await kubelet.remove(pod)
        await stage.until(lambda: seen(driver, imageless)[0].phase == "Failed")


async def test_an_ended_pod_is_kept_for_a_while_and_its_name_with_it(stage: Stage, cluster: Cluster) -> None:
    kubelet = Kubelet(cluster, namespace=NAMESPACE)
    async with stage.life() as driver:
        fulfilment = a_fulfilment(stage.target)
        start(driver, fulfilment)
        async with asyncio.timeout(PATIENCE_SECONDS):
            while not (pods := await pods_of(cluster, fulfilment)):
                await asyncio.sleep(0.01)
        (pod,) = pods
        await kubelet.run(pod)
        await kubelet.finish(pod)
        await stage.until(lambda: seen(driver, fulfilment)[0].phase == "Succeeded")
        driver.drop(fulfilment.id)
        assert driver.seen(fulfilment.id) == {}
        assert not driver.busy()
        assert len(await pods_of(cluster, fulfilment)) == 1, "a late create finds its name taken"
        start(driver, fulfilment)
        assert [task.reason for task in seen(driver, fulfilment)] == ["Lost"], "it is not made again"
        driver.drop(fulfilment.id)
        async with asyncio.timeout(PATIENCE_SECONDS):
            while await pods_of(cluster, fulfilment):
                await asyncio.sleep(0.05)
