"""Clusters whose joblets the replicas run themselves: adding one is one apply, and no replica is needed for it."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from controlplane.aio.clock import chance
from controlplane.model.hosting import Hosting
from controlplane.model.target import Live, TargetStatus
from controlplane.sealing import make_key_file
from controlplane.store import codec, keys
from controlplane.wire.v1 import cluster_pb2, secrets_pb2, targets_pb2
from tests.kubernetes.kubelet import Cluster, History, Json, Kubelet, beside, recorded
from tests.kubernetes.server import TOKEN, KubeServer
from tests.kubernetes.stage import ends, submit, until_final, until_ready
from tests.robustness.parts import Replica
from tests.robustness.promises import judge
from tests.robustness.world import Plan, World, a_world, names

TARGET = "kube-1"
SETTINGS = cluster_pb2.Settings(target_grace=30)


def a_plan(folder: Path, replicas: int = 3) -> Plan:
    """Default times, but for how long a machine with other load may take to start a process."""
    key = folder / "secret.key"
    make_key_file(key, chance)
    flags = ["--secret-key-file", str(key), "--hosting-dir", str(folder / "hosted")]
    return Plan(
        replicas=replicas,
        ttl=5,
        processes=0,
        simulated=0,
        settings=SETTINGS,
        flags=dict.fromkeys(names(replicas), flags),
    )


async def apply(world: World, kube: KubeServer, namespace: str, *targets: str, **said: Any) -> None:
    """`said` is what the targets say beside their secret."""
    text = kube.kubeconfig_for().replace('"user": "test"}', f'"user": "test", "namespace": "{namespace}"}}')
    secret = secrets_pb2.Secret(name="kube", type="kubeconfig", data={"kubeconfig": text})
    request = cluster_pb2.ApplyRequest(objects=[cluster_pb2.Object(secret=secret)])
    for name in targets:
        target = targets_pb2.Target(name=name, driver="kubernetes", kubeconfig_secret="kube", **said)
        request.objects.add().target.CopyFrom(target)
    await world.client.cluster.apply(request)


def host_of(world: World, target: str = TARGET) -> str:
    """The replica that the leader names."""
    value = world.witness.values.get(keys.hosting(target))
    return codec.decode(value.value, Hosting).replica if value is not None else ""


def instance_of(world: World, target: str = TARGET) -> str:
    value = world.witness.values.get(keys.live(target))
    return codec.decode(value.value, Live).instance if value is not None else ""


def phases_of(world: World, target: str = TARGET) -> set[str]:
    """Every phase that was ever recorded."""
    key = keys.target_status(target)
    found = (change.value for change in world.witness.changes if change.key == key)
    return {codec.decode(value.value, TargetStatus).phase for value in found if value is not None}


def hosted_here(replica: Replica) -> list[int]:
    """The joblets that this replica runs."""
    found = []
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                parent = (folder / "stat").read_text().rpartition(")")[2].split()[1]
                if parent == str(replica.pid) and b"--hosted" in (folder / "cmdline").read_bytes():
                    found.append(int(folder.name))
            except (FileNotFoundError, ProcessLookupError):
                continue
    return found


def everything_shown(folder: Path, pid: int) -> list[bytes]:
    """What others may see of a process, and every file that was written but etcd's own."""
    found = [Path(f"/proc/{pid}/cmdline").read_bytes()]
    with suppress(PermissionError):  # only root may see these
        found.append(Path(f"/proc/{pid}/environ").read_bytes())
        found += [file.read_bytes() for file in Path(f"/proc/{pid}/fd").iterdir() if "memfd" in str(file.readlink())]
    return found + [file.read_bytes() for file in folder.rglob("*") if file.is_file() and "etcd" not in file.parts]


@asynccontextmanager
async def slow_node(
    cluster: Cluster, namespace: str, may_finish: Callable[[Json], bool]
) -> AsyncIterator[tuple[History, asyncio.Event]]:
    """Runs every pod at once and lets it end when it may; set the event to have all pods looked at again."""
    await cluster.add_node("node-1")
    kubelet, events, again = Kubelet(cluster, "node-1", namespace), asyncio.Queue[Json](), asyncio.Event()

    async def work(history: History) -> None:
        while True:
            pod = (await events.get())["object"]
            phase = pod["status"].get("phase")
            if pod["metadata"].get("deletionTimestamp"):
                await kubelet.remove(pod)
            elif phase == "Pending":
                await kubelet.run(pod)
            elif phase == "Running" and may_finish(pod):
                await kubelet.finish(pod)

    async def look_again(history: History) -> None:
        while True:
            await again.wait()
            again.clear()
            for pod in list(history.newest.values()):
                events.put_nowait({"object": pod})

    def tell(event: Json) -> None:
        if event["type"] != "DELETED":
            events.put_nowait(event)

    async with recorded(cluster, namespace) as history:
        with history.told(tell):
            async with beside(work(history)), beside(look_again(history)):
                yield history, again


def running_pods(history: History) -> int:
    return sum(pod["status"].get("phase") == "Running" for pod in history.newest.values())


async def test_one_apply_adds_a_cluster_and_nothing_shows_its_secret(
    tmp_path: Path, kube: KubeServer, cluster: Cluster
) -> None:
    await cluster.add_namespace("hosted-one")
    async with (
        a_world(tmp_path, a_plan(tmp_path)) as world,
        slow_node(cluster, "hosted-one", lambda pod: True) as (history, _),
    ):
        await apply(world, kube, "hosted-one", TARGET)
        await until_ready(world, TARGET)
        order = await submit(world, count=3)
        assert await until_final(world, order) == ["Succeeded"]
        assert len(history.made) == 3
        target = await world.client.targets.get(TARGET)
        assert target.status.hosted_by == host_of(world)
        shown = everything_shown(tmp_path, *hosted_here(world.replicas[host_of(world)]))
        shown += [value.value for value in world.witness.values.values()]
        shown.append(str(await world.client.secrets.get("kube")).encode())
        assert not [text for text in shown if TOKEN.encode() in text]
        for pid in (world.replicas[host_of(world)].pid, *hosted_here(world.replicas[host_of(world)])):
            assert os.stat(f"/proc/{pid}/mem").st_uid == 0, "other processes of its user cannot read its memory"
        # Its joblet ends with the target, and makes no new one.
        (pid,) = hosted_here(world.replicas[host_of(world)])
        await world.client.targets.delete(TARGET)
        async with asyncio.timeout(30):
            while is_running(pid):
                await asyncio.sleep(0.05)
        await world.witness.caught_up()
        left = [keys.config("targets", TARGET), keys.hosting(TARGET), keys.live(TARGET)]
        await world.witness.until(lambda: not any(key in world.witness.values for key in left), "nothing of it is left")


async def test_a_host_that_was_stopped_gives_way_when_it_goes_on(
    tmp_path: Path, kube: KubeServer, cluster: Cluster
) -> None:
    """For a moment two joblets know who the target's joblet is: no pod is made twice, and one of them stays."""
    await cluster.add_namespace("hosted-stopped")
    async with (
        a_world(tmp_path, a_plan(tmp_path)) as world,
        slow_node(cluster, "hosted-stopped", lambda pod: True) as (history, _),
    ):
        await apply(world, kube, "hosted-stopped", TARGET)
        await until_ready(world, TARGET)
        victim, before, orders = world.replicas[host_of(world)], instance_of(world), list[str]()
        (pid,) = hosted_here(victim)
        victim.signal(signal.SIGSTOP)
        await world.witness.until(lambda: instance_of(world) not in ("", before), "another hosts it")
        async with beside(submitting(world, TARGET, orders)):
            await world.witness.until(lambda: world.witness.finals(set(orders)) >= 3, "orders end")
            victim.signal(signal.SIGCONT)
            await world.witness.until(lambda: world.witness.candidates() == 3, "it stands again")
            async with asyncio.timeout(30):
                while is_running(pid):
                    await asyncio.sleep(0.05)
            so_far = len(orders)
            await world.witness.until(lambda: world.witness.finals(set(orders)) >= so_far + 3, "orders go on")
        assert set(await until_final(world, *orders)) == {"Succeeded"}
        assert not history.made_twice()


def is_running(pid: int) -> bool:
    try:
        return "Z" not in Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
@pytest.mark.parametrize("leads", [True, False], ids=["leader", "standby"])
async def test_a_cluster_outlives_the_replica_that_hosts_it(
    tmp_path: Path,
    kube: KubeServer,
    cluster: Cluster,
    record_property: Callable[[str, object], None],
    number: signal.Signals,
    leads: bool,
) -> None:
    """Pods go on, none is made twice, no attempt of them is lost, and the target is not given up."""
    namespace = f"hosted-{number.name.lower()}-{'leader' if leads else 'standby'}"
    await cluster.add_namespace(namespace)
    holding: set[str] = set()
    async with (
        a_world(tmp_path, a_plan(tmp_path)) as world,
        slow_node(cluster, namespace, lambda pod: pod["metadata"]["labels"]["controlplane/order"] not in holding) as (
            history,
            again,
        ),
    ):
        # As many as there are replicas: each hosts one.
        targets = [f"kube-{number}" for number in (1, 2, 3)]
        await apply(world, kube, namespace, *targets)
        await until_ready(world, *targets)
        victim = world.leader if leads else world.standbys[0]
        (target,) = [name for name in targets if host_of(world, name) == victim.name]
        long = await submit(world, count=5, target=target)
        holding.add(long)
        await history.until(lambda seen: running_pods(seen) >= 5)
        await until_running(world, target, 5)
        before, orders = instance_of(world, target), list[str]()
        began = asyncio.get_running_loop().time()
        victim.signal(number)
        async with beside(submitting(world, target, orders)):
            await world.witness.until(lambda: instance_of(world, target) not in ("", before), "another hosts it")
            took = asyncio.get_running_loop().time() - began
            await world.witness.until(lambda: world.witness.targets[target] == "Ready", "it is Ready")
            # What was submitted meanwhile is served by the new host.
            await world.witness.until(lambda: world.witness.finals(set(orders)) >= 3, "new orders end")
        assert host_of(world, target) not in ("", victim.name)
        holding.clear()
        again.set()
        assert set(await until_final(world, long, *orders)) == {"Succeeded"}
        assert [end.attempt for _, end in ends(world, long)] == [1] * 5
        assert not history.made_twice()
        assert phases_of(world, target) <= {"Provisioning", "Ready", "Suspect"}
        for other in targets:
            assert "Failed" not in phases_of(world, other)
        verdicts = {verdict.promise: verdict for verdict in judge(world, {long, *orders})}
        assert all(verdicts[promise].ok for promise in ("P1", "P2", "P3", "P7")), verdicts
        record_property("seconds", round(took, 2))
        record_property("phases", sorted(phases_of(world, target)))
        await victim.ended()


async def submitting(world: World, target: str, orders: list[str]) -> None:
    """Orders, one after another, for as long as it runs."""
    while True:
        orders.append(await submit(world, target=target))
        await asyncio.sleep(0.2)


async def until_running(world: World, target: str, count: int) -> None:
    def running() -> bool:
        front, live = f"/controlplane/inventory/{target}/", keys.live(target)
        told = [value.value for key, value in world.witness.values.items() if key.startswith(front) and key != live]
        return sum(b'"phase":"Running"' in raw for raw in told) >= count

    await world.witness.until(running, "all of it runs")
