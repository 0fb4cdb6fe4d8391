"""Pods with all that jobs may say about them, as a real API server takes them."""

from __future__ import annotations

from pathlib import Path

from controlplane.joblet.drivers.kubernetes.api import connect
from controlplane.joblet.drivers.kubernetes.pod import PodDefaults, files_of, pod_of, refs_of
from controlplane.model import manifest
from controlplane.model.fulfilment import Fulfilment, Observed, TaskRef, TaskSpec
from controlplane.model.job import Constraint, Constraints, Toleration
from controlplane.store import codec
from controlplane.wire import convert
from controlplane.wire.v1 import orders_pb2
from tests.kubernetes.kubelet import Cluster, Kubelet, recorded
from tests.kubernetes.server import KubeServer
from tests.kubernetes.stage import ALONE, add_cluster, begun, ends, kept, until_final, until_ready
from tests.robustness.world import World, a_world

SPEC = TaskSpec(
    image="registry.example/render:1",
    command=("sh", "-c", "$$(SCENE) $(INDEX)"),
    environment={"SCENE": "/etc/scene/42.json", "ODD": "$(HOME) $$ $"},
    requests={"cpu": 0.5, "memory": 2**20, "gpu": 1, "power": 3, "storage": 5, "example.org/fpga": 2},
    time_limit=30,
    files={"/etc/scene/42.json": "{}", "/opt/licence": "süß"},
    nodes=Constraints(
        hard=(
            Constraint(label="topology.kubernetes.io/zone", values=("a", "")),
            Constraint(label="cores", op="Gt", values=("4",)),
            Constraint(label="old", op="DoesNotExist"),
        ),
        soft=(Constraint(label="disk", op="Exists", weight=0.5),),
    ),
    tolerations=(
        Toleration(key="gpu", op="Exists", effect="NoSchedule"),
        Toleration(op="Exists"),
        Toleration(key="team", value="film", effect="NoExecute", seconds=30),
    ),
    image_pull_secrets=("film",),
)


async def test_a_pod_with_all_that_a_job_may_say_is_taken_as_it_was_asked_for(
    kube: KubeServer, cluster: Cluster
) -> None:
    await cluster.add_namespace("everything")
    place = PodDefaults(namespace="everything", pull_secrets=("all",), run_as_user=1000)
    fulfilment = Fulfilment(
        id="01KXAMPLE00000000000000001",
        epoch=7,
        cycle=3,
        order="01KXAMPLE0000000000000000A",
        target="-odd.",
        tasks=tuple(TaskRef(job="render", index=index, attempt=1) for index in range(20)),
        jobs={"render": SPEC},
        owner="Anna Smith <anna@film.example>",
    )
    api = await connect(str(kube.kubeconfig), seconds=10.0)
    try:
        await api.ask("POST", "/api/v1/namespaces/everything/secrets", files_of(fulfilment, place))
        await api.ask("POST", "/api/v1/namespaces/everything/pods", pod_of(fulfilment, place))
        wanted = pod_of(fulfilment, place)
        stored = await api.ask("GET", f"/api/v1/namespaces/everything/pods/{wanted['metadata']['name']}")
    finally:
        await api.close()
    assert refs_of(stored) == fulfilment.tasks
    assert {name: stored["spec"][name] for name in wanted["spec"] if name != "containers"} == {
        name: value for name, value in wanted["spec"].items() if name != "containers"
    }
    for asked, taken in zip(wanted["spec"]["containers"], stored["spec"]["containers"], strict=True):
        assert {name: taken[name] for name in asked} == asked


async def submit_packed(world: World, count: int) -> str:
    """All of its tasks go into one pod, and each may fail once."""
    job = {
        "name": "render",
        "image": "registry.example/none:1",
        "requests": {"cpu": 1},
        "failure_policies": [{"action": "retry", "limit": 1}],
    }
    packet = {"jobs": [{"job": job, "count": count}], "pack": count}
    read = manifest.read({"kind": "Order", "id": world.client.mint.make(), "packet": packet})
    return (await world.client.orders.submit(convert.to_wire(read, orders_pb2.Order))).item.id


async def test_the_percent_of_running_tasks_is_what_their_pods_annotations_say(
    tmp_path: Path, kube: KubeServer, cluster: Cluster
) -> None:
    await cluster.add_namespace("progress")
    await cluster.add_node("node-1")
    kubelet = Kubelet(cluster, "node-1", "progress")
    async with a_world(tmp_path, ALONE) as world, recorded(cluster, "progress") as history:
        add_cluster(world, "kube-1", kube.kubeconfig, namespace="progress")
        await until_ready(world, "kube-1")
        order = await submit_packed(world, 3)
        await history.until(lambda seen: len(seen.made) == 1)
        pod = history.newest[history.made[0][1]]
        await kubelet.run(pod)
        said = {"controlplane/progress.task-0": "25", "controlplane/progress.task-1": "80", "other/progress": "3"}
        await cluster.ask(
            "PATCH",
            f"/api/v1/namespaces/progress/pods/{pod['metadata']['name']}",
            {"metadata": {"annotations": said}},
        )
        await world.witness.until(lambda: percents(world, "kube-1") == [25, 80, None], "the joblet has told of it")
        shown = await world.client.orders.get(order)
        assert [(task.phase, task.percent) for task in shown.tasks] == [
            ("Running", 25),
            ("Running", 80),
            ("Running", 0),
        ]
        await kubelet.finish(pod)
        assert await until_final(world, order) == ["Succeeded"]


def percents(world: World, target: str) -> list[int | None]:
    """Of the only fulfilment that the target runs, as its joblet reported them."""
    [key] = begun(world, target)
    tasks = codec.decode(world.witness.values[key].value, Observed).tasks
    return [task.percent for task in sorted(tasks, key=lambda task: task.index)]


def desired(world: World, target: str) -> bytes:
    """All that the leader desires there."""
    prefix = f"/controlplane/desired/{target}/"
    return b"".join(value.value for key, value in world.witness.values.items() if key.startswith(prefix))


async def test_of_several_tasks_in_a_pod_the_one_that_fails_is_tried_again_in_a_pod_of_its_own(
    tmp_path: Path, kube: KubeServer, cluster: Cluster
) -> None:
    await cluster.add_namespace("packed")
    await cluster.add_node("node-1")
    kubelet = Kubelet(cluster, "node-1", "packed")
    async with a_world(tmp_path, ALONE) as world, recorded(cluster, "packed") as history:
        add_cluster(world, "kube-1", kube.kubeconfig, namespace="packed")
        await until_ready(world, "kube-1")
        order = await submit_packed(world, 3)
        await history.until(lambda seen: len(seen.made) == 1)
        first = history.newest[history.made[0][1]]
        assert [ref.index for ref in refs_of(first)] == [0, 1, 2]
        await kubelet.run(first)
        await kubelet.finish(first, exit_codes={"task-1": 4})
        await history.until(lambda seen: len(seen.made) == 2)
        again = history.newest[history.made[1][1]]
        assert refs_of(again) == (TaskRef(job="render", index=1, attempt=2),)
        await kubelet.run(again)
        await kubelet.finish(again)
        assert await until_final(world, order) == ["Succeeded"]
        found = sorted((end.index, end.attempt, end.exit_code, end.decision) for _, end in ends(world, order))
        assert found == [(0, 1, 0, "done"), (1, 1, 4, "retry"), (1, 2, 0, "done"), (2, 1, 0, "done")]
        await kept(world, order)


async def test_of_several_tasks_in_a_pod_one_that_is_cancelled_leaves_the_others_running(
    tmp_path: Path, kube: KubeServer, cluster: Cluster
) -> None:
    await cluster.add_namespace("apart")
    await cluster.add_node("node-1")
    kubelet = Kubelet(cluster, "node-1", "apart")
    async with a_world(tmp_path, ALONE) as world, recorded(cluster, "apart") as history:
        add_cluster(world, "kube-1", kube.kubeconfig, namespace="apart")
        await until_ready(world, "kube-1")
        order = await submit_packed(world, 3)
        await history.until(lambda seen: len(seen.made) == 1)
        uid = history.made[0][1]
        await kubelet.run(history.newest[uid])
        await world.witness.until(lambda: percents(world, "kube-1") == [None] * 3, "the pod runs")
        await world.client.orders.cancel_tasks(orders_pb2.TasksRequest(id=order, job="render", index=0))
        await world.witness.until(lambda: b'"stop":[' in desired(world, "kube-1"), "the leader asks for its stop")
        # The joblet gets the stop before the next order, so what it does about it is done when that one has ended.
        later = await submit_packed(world, 1)
        await history.until(lambda seen: len(seen.made) == 2)
        await kubelet.run(history.newest[history.made[1][1]])
        await kubelet.finish(history.newest[history.made[1][1]])
        assert await until_final(world, later) == ["Succeeded"]
        assert uid in history.newest, "the pod was removed with all of its tasks"
        assert "deletionTimestamp" not in history.newest[uid]["metadata"]
        await kubelet.finish(history.newest[uid])
        await until_final(world, order)
        decided = {end.index: (end.phase, end.exit_code) for _, end in ends(world, order)}
        assert decided == {0: ("Succeeded", 0), 1: ("Succeeded", 0), 2: ("Succeeded", 0)}
        await kept(world, order)
