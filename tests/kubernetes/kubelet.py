"""Plays what a cluster has besides its API: nodes, scheduler and kubelets. All through the real API.

`Cluster` is an administrator with plain JSON, `Kubelet` does to pods what a node would, and `History` keeps every pod
that was ever made, as the API's own watch tells it.
"""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from types import TracebackType
from typing import Any

import aiohttp

from tests.kubernetes.server import TOKEN, KubeServer

Json = dict[str, Any]
PATIENCE_SECONDS = 60.0
# What a busy node does at the same time.
WORKERS = 8
STARTED = "2026-01-02T03:04:05Z"
# What a kubelet writes for a time that never was.
NEVER = "1970-01-01T00:00:00Z"
FINISHED = "2026-01-02T03:04:06Z"


class Cluster:
    """Every answer that is no success raises, unless its status is allowed."""

    def __init__(self, server: KubeServer, token: str = TOKEN) -> None:
        self.server = server
        self._headers = {"Authorization": f"Bearer {token}"}
        self._session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> Cluster:
        connector = aiohttp.TCPConnector(ssl=self.server.trust)
        self._session = aiohttp.ClientSession(connector=connector, headers=self._headers, read_bufsize=2**21)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._session is not None
        await self._session.close()

    async def ask(
        self, method: str, path: str, body: Json | None = None, *, allow: tuple[int, ...] = (), **query: str
    ) -> Json:
        assert self._session is not None
        kind = "application/strategic-merge-patch+json" if method == "PATCH" else "application/json"
        url, data = f"{self.server.url}{path}", json.dumps(body) if body is not None else None
        async with self._session.request(method, url, params=query, data=data, headers={"Content-Type": kind}) as got:
            # Of a path that it does not serve, or not yet, the server says so in plain text.
            plain = got.content_type != "application/json"
            answer: Json = {"code": got.status, "message": await got.text()} if plain else await got.json()
            if got.status >= 300 and got.status not in allow:
                raise AssertionError(f"{method} {path}: {got.status} {answer.get('message')}")
            return answer

    async def watch(self, path: str, **query: str) -> AsyncIterator[Json]:
        """Events until the server ends the watch."""
        assert self._session is not None
        timeout = aiohttp.ClientTimeout(total=None)
        url, asked = f"{self.server.url}{path}", {"watch": "1", **query}
        async with self._session.get(url, params=asked, timeout=timeout) as got:
            assert got.status == 200, await got.text()
            async for line in got.content:
                yield json.loads(line)

    async def token_of(self, namespace: str, account: str) -> str:
        """A token of the service account, as a pod of it would have."""
        wanted = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"expirationSeconds": 3600}}
        answer = await self.ask("POST", f"/api/v1/namespaces/{namespace}/serviceaccounts/{account}/token", wanted)
        return str(answer["status"]["token"])

    async def add_node(self, name: str, **capacity: str) -> None:
        """A ready node with that much room; without the taint that a new one carries."""
        room = {"cpu": "16", "memory": "64Gi", "pods": "1000", **capacity}
        node = {"kind": "Node", "apiVersion": "v1", "metadata": {"name": name}}
        await self.ask("POST", "/api/v1/nodes", node, allow=(409,))
        taints: Json = {"spec": {"taints": None}}
        await self.ask("PATCH", f"/api/v1/nodes/{name}", taints)
        ready = {"type": "Ready", "status": "True", "lastHeartbeatTime": STARTED, "lastTransitionTime": STARTED}
        status = {"status": {"capacity": room, "allocatable": room, "conditions": [ready]}}
        await self.ask("PATCH", f"/api/v1/nodes/{name}/status", status)

    async def pods(self, namespace: str = "default", selector: str = "") -> list[Json]:
        found = await self.ask("GET", f"/api/v1/namespaces/{namespace}/pods", labelSelector=selector)
        items: list[Json] = found["items"]
        return items

    async def add_namespace(self, name: str) -> None:
        await self.ask("POST", "/api/v1/namespaces", {"metadata": {"name": name}}, allow=(409,))


@asynccontextmanager
async def cluster_of(server: KubeServer) -> AsyncIterator[Cluster]:
    async with Cluster(server) as cluster:
        yield cluster


class Kubelet:
    """What a node does to pods, one step at a time."""

    def __init__(self, cluster: Cluster, node: str = "node-1", namespace: str = "default") -> None:
        self._cluster = cluster
        self._node = node
        self._pods = f"/api/v1/namespaces/{namespace}/pods"

    async def bind(self, pod: Json) -> None:
        name = pod["metadata"]["name"]
        target = {"kind": "Node", "apiVersion": "v1", "name": self._node}
        binding = {"kind": "Binding", "apiVersion": "v1", "metadata": {"name": name}, "target": target}
        await self._cluster.ask("POST", f"{self._pods}/{name}/binding", binding, allow=(404, 409))

    async def run(self, pod: Json) -> None:
        """Bound, and all of its containers run."""
        await self.bind(pod)
        await self.set_status(pod, "Running", {"running": {"startedAt": STARTED}})

    async def finish(self, pod: Json, *, exit_codes: Mapping[str, int] | None = None, message: str = "") -> None:
        """All containers end: with 0, or as `exit_codes` says by their name; `message` is their termination message."""
        codes = {name: (exit_codes or {}).get(name, 0) for name in containers_of(pod)}
        states = {name: terminated(code, message=message) for name, code in codes.items()}
        await self.set_states(pod, "Failed" if any(codes.values()) else "Succeeded", states)

    async def fail_to_start(self, pod: Json) -> None:
        """What containerd and runc say of a command that is not in the image; nothing of it ever ran."""
        await self.bind(pod)
        program = (pod["spec"]["containers"][0].get("command") or ["run"])[0]
        message = (
            "failed to create containerd task: failed to create shim task: OCI runtime create failed: runc create "
            "failed: unable to start container process: error during container init: "
            f'exec: "{program}": executable file not found in $PATH: unknown'
        )
        state = terminated(128, reason="StartError", message=message)
        state["terminated"]["startedAt"] = NEVER
        await self.set_status(pod, "Failed", state)

    async def refuse_root(self, pod: Json) -> None:
        """Of an image without a user, where the pod must not run as root: it waits, and that never ends."""
        await self.bind(pod)
        context = {**pod["spec"].get("securityContext", {}), **pod["spec"]["containers"][0].get("securityContext", {})}
        if not context.get("runAsNonRoot"):
            await self.run(pod)
            return
        metadata = pod["metadata"]
        where = f'(pod: "{metadata["name"]}_{metadata["namespace"]}({metadata["uid"]})", container: task-0)'
        message = f"container has runAsNonRoot and image will run as root {where}"
        await self.set_status(pod, "Pending", {"waiting": {"reason": "CreateContainerConfigError", "message": message}})

    async def refuse_image(self, pod: Json) -> None:
        """Of an image in a registry that does not answer."""
        await self.bind(pod)
        image = pod["spec"]["containers"][0]["image"]
        message = (
            f'Back-off pulling image "{image}": ErrImagePull: failed to pull and unpack image "{image}": failed to '
            f'resolve reference "{image}": failed to do request: Head "https://127.0.0.1:1/v2/none/manifests/1": dial '
            "tcp 127.0.0.1:1: connect: connection refused"
        )
        await self.set_status(pod, "Pending", {"waiting": {"reason": "ImagePullBackOff", "message": message}})

    async def kill_after_grace(self, pod: Json) -> None:
        """What becomes of a pod that is to go whose process 1 does not handle SIGTERM."""
        await asyncio.sleep(pod["metadata"]["deletionGracePeriodSeconds"])
        if pod["status"].get("phase") == "Running":
            await self.set_status(pod, "Failed", terminated(137))
        await self.remove(pod)

    async def set_status(self, pod: Json, phase: str, state: Json, **more: str) -> None:
        await self.set_states(pod, phase, dict.fromkeys(containers_of(pod), state), **more)

    async def set_states(self, pod: Json, phase: str, states: Mapping[str, Json], **more: str) -> None:
        """The state of each container by its name; `more` goes into the status as it is."""
        images = {container["name"]: container["image"] for container in pod["spec"]["containers"]}
        statuses = [
            {
                "name": name,
                "image": images[name],
                "imageID": "",
                "ready": "running" in state,
                "restartCount": 0,
                "state": state,
            }
            for name, state in states.items()
        ]
        status = {"phase": phase, "startTime": STARTED, "containerStatuses": statuses, **more}
        await self._cluster.ask(
            "PATCH", f"{self._pods}/{pod['metadata']['name']}/status", {"status": status}, allow=(404,)
        )

    async def remove(self, pod: Json) -> None:
        """What a kubelet does last to a pod that is to be deleted."""
        options = {"kind": "DeleteOptions", "apiVersion": "v1", "gracePeriodSeconds": 0}
        options["preconditions"] = {"uid": pod["metadata"]["uid"]}
        name = pod["metadata"]["name"]
        await self._cluster.ask("DELETE", f"{self._pods}/{name}", options, allow=(404, 409))


def terminated(exit_code: int, *, reason: str = "", message: str = "") -> Json:
    state = {
        "exitCode": exit_code,
        "reason": reason or ("Error" if exit_code else "Completed"),
        "startedAt": STARTED,
        "finishedAt": FINISHED,
    }
    return {"terminated": {**state, "message": message} if message else state}


def containers_of(pod: Json) -> list[str]:
    return [container["name"] for container in pod["spec"]["containers"]]


class History:
    """Every pod of ours that was ever made: (fulfilment, uid) in the order in which the watch told of them."""

    def __init__(self) -> None:
        self.made: list[tuple[str, str]] = []
        self.newest: dict[str, Json] = {}
        self._told: set[Callable[[Json], None]] = set()

    def hear(self, event: Json) -> None:
        pod = event["object"]
        uid = pod["metadata"]["uid"]
        if event["type"] == "ADDED":
            self.made.append((pod["metadata"]["labels"]["controlplane/fulfilment"], uid))
        if event["type"] == "DELETED":
            self.newest.pop(uid, None)
        else:
            self.newest[uid] = pod
        for tell in list(self._told):
            tell(event)

    def made_twice(self) -> set[str]:
        """Fulfilments for which more than one pod was ever made."""
        return {name for name, count in Counter(fulfilment for fulfilment, _ in self.made).items() if count > 1}

    @contextmanager
    def told(self, tell: Callable[[Json], None]) -> Iterator[None]:
        """`tell` hears every event from now on."""
        self._told.add(tell)
        try:
            yield
        finally:
            self._told.discard(tell)

    async def until(self, reached: Callable[[History], bool], seconds: float = PATIENCE_SECONDS) -> None:
        """Waits for it, change by change."""
        changed = asyncio.Event()
        with self.told(lambda event: changed.set()):
            async with asyncio.timeout(seconds):
                while not reached(self):
                    changed.clear()
                    await changed.wait()


@asynccontextmanager
async def recorded(cluster: Cluster, namespace: str = "default") -> AsyncIterator[History]:
    """Begins now, and is whole: should the watch break, the test breaks."""
    history = History()
    path, selector = f"/api/v1/namespaces/{namespace}/pods", "app.kubernetes.io/managed-by=controlplane"
    listed = await cluster.ask("GET", path, labelSelector=selector)
    for pod in listed["items"]:
        history.hear({"type": "ADDED", "object": pod})

    async def follow() -> None:
        since = listed["metadata"]["resourceVersion"]
        while True:
            query = {"labelSelector": selector, "resourceVersion": since, "allowWatchBookmarks": "true"}
            async for event in cluster.watch(path, **query):
                assert event["type"] != "ERROR", event
                since = event["object"]["metadata"]["resourceVersion"]
                if event["type"] != "BOOKMARK":
                    history.hear(event)

    async with beside(follow()):
        yield history


@asynccontextmanager
async def beside(work: Coroutine[None, None, None]) -> AsyncIterator[None]:
    """Runs it beside the test; its failure is the test's."""
    task = asyncio.create_task(work)
    try:
        yield
    finally:
        ended = task.done()
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        if ended and not task.cancelled() and (error := task.exception()) is not None:
            raise error


@asynccontextmanager
async def busy_node(
    cluster: Cluster,
    *,
    node: str = "node-1",
    namespace: str = "default",
    message_of: Callable[[Json], str] = lambda pod: "",
    start: Callable[[Kubelet, Json], Coroutine[None, None, None]] = Kubelet.run,
    stop: Callable[[Kubelet, Json], Coroutine[None, None, None]] = Kubelet.remove,
    finishes: bool = True,
) -> AsyncIterator[History]:
    """A node that runs every pod to its end by itself, at once, and lets go of what is to be deleted.

    `message_of` gives the termination message of a pod's containers; `start` and `stop` are what it does to a pod that
    is new, and to one that is to go. What runs never ends by itself unless it `finishes`.
    """
    await cluster.add_node(node)
    kubelet = Kubelet(cluster, node, namespace)
    # What is told of one pod is done in its order.
    queues: list[asyncio.Queue[Json]] = [asyncio.Queue() for _ in range(WORKERS)]

    async def work(events: asyncio.Queue[Json]) -> None:
        while True:
            pod = await events.get()
            phase = pod["status"].get("phase")
            if pod["metadata"].get("deletionTimestamp"):
                await stop(kubelet, pod)
            elif phase == "Pending":
                await start(kubelet, pod)
            elif phase == "Running" and finishes:
                await kubelet.finish(pod, message=message_of(pod))

    def tell(event: Json) -> None:
        if event["type"] != "DELETED":
            give(event["object"])

    def give(pod: Json) -> None:
        queues[hash(pod["metadata"]["uid"]) % WORKERS].put_nowait(pod)

    async with recorded(cluster, namespace) as history:
        for pod in history.newest.values():
            give(pod)
        with history.told(tell):
            async with AsyncExitStack() as stack:
                for queue in queues:
                    await stack.enter_async_context(beside(work(queue)))
                yield history
