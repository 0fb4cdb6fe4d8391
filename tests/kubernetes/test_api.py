"""What the driver relies on in the API and in the client's transport, on a real API server."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from controlplane.joblet.drivers.kubernetes.api import Answered, Api, connect
from controlplane.model.errors import Compacted, Unavailable
from tests.kubernetes.conftest import binary_or_skip
from tests.kubernetes.kubelet import Cluster
from tests.kubernetes.server import KubeServer, running_server


@pytest.fixture
async def api(kube: KubeServer) -> AsyncIterator[Api]:
    opened = await connect(str(kube.kubeconfig), seconds=5.0)
    yield opened
    await opened.close()


@pytest.fixture
async def pods(cluster: Cluster, request: pytest.FixtureRequest) -> str:
    """The path of a namespace of the test's own."""
    name = request.node.name.replace("_", "-")[5:40].rstrip("-")
    await cluster.add_namespace(name)
    return f"/api/v1/namespaces/{name}/pods"


def a_pod(name: str) -> dict[str, Any]:
    return {"metadata": {"name": name}, "spec": {"containers": [{"name": "one", "image": "none"}]}}


async def names(events: AsyncIterator[dict[str, Any]], count: int) -> list[tuple[str, str]]:
    """The next ones, without bookmarks."""
    found: list[tuple[str, str]] = []
    async for event in events:
        if event and event["type"] != "BOOKMARK":
            found.append((event["type"], event["object"]["metadata"]["name"]))
        if len(found) == count:
            break
    return found


async def test_a_watch_goes_on_behind_what_was_listed(api: Api, pods: str) -> None:
    await api.ask("POST", pods, a_pod("one"))
    listed = [page async for page in api.pages(pods, {})][-1]
    await api.ask("POST", pods, a_pod("two"))
    await api.ask("DELETE", f"{pods}/one", query={"gracePeriodSeconds": "0"})
    events = api.watch(pods, {}, listed["metadata"]["resourceVersion"], 30)
    # A delete may show as a change before.
    found = await names(events, 3)
    assert found[0] == ("ADDED", "two")
    assert found[-1] == ("DELETED", "one")


async def test_a_watch_that_ended_by_itself_is_gone_on_with(api: Api, pods: str) -> None:
    listed = [page async for page in api.pages(pods, {})][-1]
    since = listed["metadata"]["resourceVersion"]
    assert await names(api.watch(pods, {}, since, 1), 1) == []
    await api.ask("POST", pods, a_pod("one"))
    assert await names(api.watch(pods, {}, since, 30), 1) == [("ADDED", "one")]


async def test_a_cancelled_watch_leaves_nothing_behind(api: Api, pods: str) -> None:
    listed = [page async for page in api.pages(pods, {})][-1]
    begun = asyncio.Event()

    async def follow() -> None:
        async for _ in api.watch(pods, {}, listed["metadata"]["resourceVersion"], 300):
            begun.set()

    task = asyncio.create_task(follow())
    await begun.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await api.ask("POST", pods, a_pod("after"))


async def test_a_list_of_many_comes_in_pages_and_whole(api: Api, pods: str) -> None:
    await asyncio.gather(*(api.ask("POST", pods, a_pod(f"pod-{number}")) for number in range(12)))
    found = [pod["metadata"]["name"] async for page in api.pages(pods, {"limit": "5"}) for pod in page["items"]]
    assert len(found) == len(set(found)) == 12


async def test_a_name_can_be_taken_once(api: Api, pods: str) -> None:
    await api.ask("POST", pods, a_pod("one"))
    with pytest.raises(Answered) as refused:
        await api.ask("POST", pods, a_pod("one"))
    assert (refused.value.status, refused.value.reason) == (409, "AlreadyExists")
    assert refused.value.certainly_not_applied
    assert not refused.value.waiting_helps


async def test_what_the_api_forgot_is_compacted_and_a_dead_api_is_unavailable(tmp_path_factory: Any) -> None:
    with running_server(binary_or_skip(), tmp_path_factory.mktemp("own")) as server:
        api = await connect(str(server.kubeconfig), seconds=5.0)
        path = "/api/v1/namespaces/default/pods"
        old = [page async for page in api.pages(path, {})][-1]["metadata"]["resourceVersion"]
        await api.ask("POST", path, a_pod("one"))
        server.kill_server()
        with pytest.raises(Unavailable):
            await api.ask("POST", path, a_pod("two"))
        server.start_server()
        with pytest.raises(Compacted):
            async for _ in api.watch(path, {}, old, 5):
                pass
        await api.close()
