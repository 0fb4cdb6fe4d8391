"""Logs of containers through a real API server, which asks a kubelet that is played."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest

from controlplane.joblet.drivers.kubernetes.api import connect
from controlplane.joblet.drivers.kubernetes.container_logs import ClusterLogs, ContainerLog, LogTail
from controlplane.joblet.drivers.kubernetes.pod import PodDefaults, name_of, pod_of
from controlplane.joblet.log_source import LogQuery
from controlplane.model.errors import NotFound, Refused, Unavailable
from controlplane.model.fulfilment import Fulfilment, TaskRef, TaskSpec
from controlplane.wire.v1.logs_pb2 import LogsRequest
from tests.etcd import free_ports
from tests.kubernetes.kubelet import Cluster, Json, Kubelet, recorded
from tests.kubernetes.kubelet_logs import KubeletDoor, a_kubelet_door, reachable
from tests.kubernetes.server import KubeServer
from tests.kubernetes.stage import ALONE, add_cluster, submit, until_ready
from tests.robustness.world import a_world

NAMESPACE, NODE, CONTAINER = "logs", "node-of-logs", "task-0"
TASK = TaskRef(job="say", index=0, attempt=1)


@pytest.fixture
async def logs(kube: KubeServer) -> AsyncIterator[ClusterLogs]:
    api = await connect(str(kube.kubeconfig), seconds=5.0)
    yield ClusterLogs(api, NAMESPACE)
    await api.close()


@pytest.fixture
async def door(cluster: Cluster, tmp_path: Path) -> AsyncIterator[KubeletDoor]:
    await cluster.add_namespace(NAMESPACE)
    async with a_kubelet_door(cluster, NODE, tmp_path) as door:
        yield door


class Box:
    """One pod of one task, and what is asked of its log."""

    def __init__(self, cluster: Cluster, identity: str) -> None:
        self.identity = identity
        self.name = name_of(identity)
        self._cluster = cluster
        self._kubelet = Kubelet(cluster, NODE, NAMESPACE)
        self.pod: Json = {}

    async def run(self) -> None:
        fulfilment = Fulfilment(
            id=self.identity, epoch=1, cycle=1, order="01HZZZZZZZZZZZZZZZZZZZZZZZ", target="here", tasks=(TASK,),
            jobs={"say": TaskSpec(image="registry.example/none:1", command=("say",))},
        )  # fmt: skip
        body = pod_of(fulfilment, PodDefaults(namespace=NAMESPACE))
        self.pod = await self._cluster.ask("POST", f"/api/v1/namespaces/{NAMESPACE}/pods", body)
        await self._kubelet.run(self.pod)

    async def finish(self) -> None:
        await self._kubelet.finish(self.pod)

    async def remove(self) -> None:
        await self._kubelet.remove(self.pod)

    def query(self, **fields: Any) -> LogQuery:
        return LogQuery(order="01HZZZZZZZZZZZZZZZZZZZZZZZ", fulfilment=self.identity, task=TASK, **fields)


@pytest.fixture
async def box(cluster: Cluster, door: KubeletDoor, request: pytest.FixtureRequest) -> Box:
    number = sum(request.node.name.encode())
    box = Box(cluster, f"01HYYYYYYYYYYYYYYYYYY{number:05d}")
    await box.run()
    return box


async def rest(log: ContainerLog, most: int = 7) -> bytes:
    told = b""
    try:
        while (piece := await log.read(most)) is not None:
            assert len(piece.data) <= most
            told += piece.data
    finally:
        log.close()
    return told


async def test_a_log_is_read_from_where_it_was_asked_for(logs: ClusterLogs, door: KubeletDoor, box: Box) -> None:
    await door.write(box.name, CONTAINER, b"one\ntwo\n\xff\0three\n")
    assert await rest(logs.open(box.query())) == b"one\ntwo\n\xff\0three\n"
    log = logs.open(box.query(start=(5, 0)))
    first = await log.read(100)
    assert first is not None
    assert (first.stream, first.offset, first.data) == ("stdout", 5, b"wo\n\xff\0three\n")
    log.close()
    assert await rest(logs.open(box.query(tail_lines=2))) == b"two\n\xff\0three\n"
    assert await rest(logs.open(box.query(start=(1000, 0)))) == b""


async def test_a_followed_log_ends_with_its_container(logs: ClusterLogs, door: KubeletDoor, box: Box) -> None:
    await door.write(box.name, CONTAINER, b"first\n")
    log = logs.open(box.query(follow=True))
    piece = await log.read(100)
    assert piece is not None
    assert piece.data == b"first\n"
    following = asyncio.ensure_future(rest(log))
    await door.write(box.name, CONTAINER, b"last\n")
    await box.finish()
    await door.let_go(box.name, CONTAINER)
    assert await following == b"last\n"


async def test_a_followed_log_that_breaks_off_can_be_gone_on_with(
    logs: ClusterLogs, door: KubeletDoor, box: Box
) -> None:
    await door.write(box.name, CONTAINER, b"first\n")
    await door.let_go(box.name, CONTAINER)
    with pytest.raises(Unavailable, match="broke off"):
        await rest(logs.open(box.query(follow=True)))
    await door.go_on(box.name, CONTAINER)
    following = asyncio.ensure_future(rest(logs.open(box.query(follow=True, start=(6, 0)))))
    await door.write(box.name, CONTAINER, b"second\n")
    await box.finish()
    await door.let_go(box.name, CONTAINER)
    assert await following == b"second\n"


async def test_a_node_without_a_kubelet_is_away(
    logs: ClusterLogs, cluster: Cluster, door: KubeletDoor, box: Box
) -> None:
    await reachable(cluster, NODE, free_ports(1)[0])
    for follow in (False, True):
        with pytest.raises(Unavailable, match="refused"):
            await rest(logs.open(box.query(follow=follow)))


async def test_a_container_that_has_not_started_has_no_log_yet(logs: ClusterLogs, door: KubeletDoor, box: Box) -> None:
    with pytest.raises(Refused, match="waiting to start"):
        await rest(logs.open(box.query()))
    with pytest.raises(Unavailable, match="waiting to start"):
        await rest(logs.open(box.query(follow=True)))


async def test_what_is_not_there_is_not_found(logs: ClusterLogs, door: KubeletDoor, box: Box) -> None:
    other = LogQuery(order="o", fulfilment=box.identity, task=TaskRef(job="say", index=0, attempt=2))
    with pytest.raises(NotFound):
        await rest(logs.open(other))
    await box.remove()
    with pytest.raises(NotFound, match="not found"):
        await rest(logs.open(box.query()))
    with pytest.raises(Refused, match="one log"):
        logs.open(box.query(stream="stderr"))


async def test_an_api_that_is_away_is_unavailable(
    door: KubeletDoor, box: Box, kube: KubeServer, tmp_path: Path
) -> None:
    nowhere = tmp_path / "nowhere.json"
    nowhere.write_text(kube.kubeconfig_for(url=f"https://127.0.0.1:{free_ports(1)[0]}"))
    api = await connect(str(nowhere), seconds=5.0)
    with pytest.raises(Unavailable, match="cannot be reached"):
        await rest(ClusterLogs(api, NAMESPACE).open(box.query()))
    await api.close()


@pytest.mark.parametrize("cut", [1, 2, 3, 100])
def test_the_tail_is_found_wherever_the_blocks_are_cut(cut: int) -> None:
    for text, lines, start in ((b"a\nbc\n\nd\n", 2, 5), (b"a\nbc\n\nd", 1, 6), (b"a\n", 5, 0), (b"", 1, 0)):
        tail = LogTail(lines)
        for at in range(0, len(text), cut):
            tail.feed(text[at : at + cut])
        assert tail.start == start, text


async def test_a_client_follows_a_pod_through_the_control_plane(
    cluster: Cluster, kube: KubeServer, tmp_path: Path
) -> None:
    namespace = "logs-of-orders"
    await cluster.add_namespace(namespace)
    async with a_kubelet_door(cluster, NODE, tmp_path / "door") as door, a_world(tmp_path / "w", ALONE) as world:
        add_cluster(world, "logs-cluster", kube.kubeconfig, namespace=namespace)
        await until_ready(world, "logs-cluster")
        async with recorded(cluster, namespace) as history:
            order = await submit(world, target="logs-cluster")
            await history.until(lambda history: bool(history.newest))
            pod = next(iter(history.newest.values()))
            name, kubelet = pod["metadata"]["name"], Kubelet(cluster, NODE, namespace)
            await door.write(name, CONTAINER, b"hello\n")
            told = bytearray()

            async def follow() -> None:
                async with aclosing(world.client.orders.logs(LogsRequest(id=order, follow=True))) as chunks:
                    async for chunk in chunks:
                        told.extend(chunk.piece.data)

            following = asyncio.ensure_future(follow())
            await kubelet.run(pod)
            async with asyncio.timeout(60):
                while told != b"hello\n":
                    await asyncio.sleep(0.02)
            await door.write(name, CONTAINER, b"bye\n")
            await kubelet.finish(pod)
            await door.let_go(name, CONTAINER)
            async with asyncio.timeout(60):
                await following
            assert told == b"hello\nbye\n"
