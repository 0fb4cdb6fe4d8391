"""The provider `cluster-api` on a real API server: idempotent, patient, and never touching what is not its own."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from msgspec.structs import replace

from controlplane.aio.backoff import doubling
from controlplane.aio.clock import SystemClock
from controlplane.model.errors import Conflict, OutcomeUnknown, Refused, StaleAttempt, Unavailable
from controlplane.model.scalepolicy import ClusterApi, Made
from controlplane.providers.cluster_api import ClusterApiProvider, by_file
from controlplane.providers.retry_policy import RetryPolicy
from tests.kubernetes.conftest import binary_or_skip
from tests.kubernetes.kubelet import Cluster, Json
from tests.kubernetes.management import TEMPLATE, Front, define
from tests.kubernetes.server import KubeServer, running_server

QUICK = RetryPolicy(answer_seconds=5.0, tries=3, backoff=doubling(0.01, 100.0))
_numbers = itertools.count(1)


class Pool:
    """A namespace of the management cluster for one test, and a provider that makes machines there."""

    def __init__(self, cluster: Cluster, kube: KubeServer, namespace: str, path: str) -> None:
        self.cluster, self.kube, self.path = cluster, kube, path
        self.made = Made(
            id="B", target="farm-1", policy="farm", provider="cluster-api", epoch=1, request="R1", capacity={"cpu": 6},
            cluster_api=ClusterApi(namespace=namespace, template="pool", machine={"cpu": 4}),
        )  # fmt: skip

    def provider(self, kubeconfig: Path | None = None, patience: RetryPolicy = QUICK) -> ClusterApiProvider:
        return ClusterApiProvider(by_file(str(kubeconfig or self.kube.kubeconfig)), SystemClock(), patience)

    async def all(self) -> dict[str, Json]:
        found = await self.cluster.ask("GET", self.path)
        return {one["metadata"]["name"]: one for one in found["items"] if one["metadata"]["name"] != "pool"}

    async def replicas(self) -> dict[str, int]:
        return {name: one["spec"]["replicas"] for name, one in (await self.all()).items()}


@pytest.fixture(scope="module")
def kube(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KubeServer]:
    """A management cluster of its own."""
    with running_server(binary_or_skip(), tmp_path_factory.mktemp("management")) as server:
        yield server


@pytest.fixture
async def pool(cluster: Cluster, kube: KubeServer) -> Pool:
    namespace = f"machines-{next(_numbers)}"
    return Pool(cluster, kube, namespace, await define(cluster, namespace))


@pytest.fixture
async def front(kube: KubeServer) -> AsyncIterator[Front]:
    async with Front(kube).running() as started:
        yield started


def behind(front: Front, kube: KubeServer, folder: Path) -> Path:
    kubeconfig = folder / "front.json"
    kubeconfig.write_text(kube.kubeconfig_for(url=front.url))
    return kubeconfig


async def test_however_often_and_by_whom_it_is_asked_for_there_is_one_and_it_is_written_once(pool: Pool) -> None:
    await pool.provider().create(pool.made)
    first = await pool.all()
    await pool.provider().create(pool.made)
    await asyncio.gather(*(pool.provider().create(pool.made) for _ in range(4)))
    assert await pool.all() == first
    (one,) = first.values()
    assert (one["spec"]["replicas"], one["spec"]["clusterName"]) == (2, "farm-1")
    copied = {**TEMPLATE["spec"]["template"]["spec"], "clusterName": "farm-1"}
    assert one["spec"]["template"]["spec"] == copied


async def test_a_size_is_a_number_of_machines_and_a_late_request_changes_nothing(pool: Pool) -> None:
    provider, made = pool.provider(), pool.made
    await provider.create(made)
    await provider.resize(replace(made, generation=2, request="R2", capacity={"cpu": 20}))
    assert await pool.replicas() == {"farm-1": 5}
    with pytest.raises(StaleAttempt):
        await provider.create(made)
    await provider.resize(replace(made, generation=3, request="R3", capacity={"cpu": 1}))
    assert await pool.replicas() == {"farm-1": 1}


async def test_a_removed_one_has_no_machines_and_no_late_request_brings_them_back(pool: Pool) -> None:
    provider, made = pool.provider(), pool.made
    await provider.create(made)
    await provider.create(replace(made, target="farm-2"))
    away = replace(made, generation=2, request="R2")
    await provider.remove(away)
    await provider.remove(away)
    assert await pool.replicas() == {"farm-1": 0, "farm-2": 2}
    for late in (made, replace(made, generation=2, request="R9")):
        with pytest.raises(StaleAttempt):
            await provider.resize(late)
    await provider.create(replace(made, id="C", request="R3"))
    await provider.remove(away)
    assert await pool.replicas() == {"farm-1": 2, "farm-2": 2}
    await provider.remove(replace(made, target="never-made"))


async def test_writers_that_meet_agree_on_the_latest_request(pool: Pool) -> None:
    await pool.provider().create(pool.made)
    many = [replace(pool.made, generation=n, request=f"R{n}", capacity={"cpu": 4 * n}) for n in range(2, 10)]
    patient = replace_tries(QUICK, 20)
    done = await asyncio.gather(*(pool.provider(patience=patient).resize(one) for one in many), return_exceptions=True)
    assert all(end is None or isinstance(end, StaleAttempt) for end in done), done
    assert done[-1] is None
    assert await pool.replicas() == {"farm-1": 9}


def replace_tries(patience: RetryPolicy, tries: int) -> RetryPolicy:
    return RetryPolicy(patience.answer_seconds, tries, patience.backoff)


async def test_what_somebody_else_made_is_left_alone(pool: Pool) -> None:
    foreign = TEMPLATE | {"metadata": {"name": "farm-1"}}
    await pool.cluster.ask("POST", pool.path, foreign)
    before = await pool.all()
    for act in (pool.provider().create, pool.provider().resize, pool.provider().remove):
        with pytest.raises(Refused, match="was not made for this target"):
            await act(pool.made)
    assert await pool.all() == before


async def test_settings_that_do_not_fit_are_refused_by_their_name(pool: Pool, tmp_path: Path) -> None:
    assert pool.made.cluster_api is not None
    nowhere = replace(pool.made, cluster_api=replace(pool.made.cluster_api, template="none"))
    with pytest.raises(Refused, match=r"cluster_api\.template"):
        await pool.provider().create(nowhere)
    stranger = tmp_path / "stranger.json"
    stranger.write_text(pool.kube.kubeconfig_for(token="nobody"))
    with pytest.raises(Refused, match="401"):
        await pool.provider(stranger).create(pool.made)
    (tmp_path / "bad.json").write_text("[]")
    with pytest.raises(Refused, match="cluster_api_kubeconfig"):
        await pool.provider(tmp_path / "bad.json").create(pool.made)
    assert await pool.replicas() == {}


@pytest.mark.parametrize("status", [429, 500, 503, 409])
async def test_an_api_that_is_busy_is_asked_again_and_given_up_after_some_tries(
    pool: Pool, front: Front, tmp_path: Path, status: int
) -> None:
    provider = pool.provider(behind(front, pool.kube, tmp_path))
    front.answers = [(status, {}), None, (status, {})]
    await provider.create(pool.made)
    assert await pool.replicas() == {"farm-1": 2}
    front.answers = [(status, {})] * 3
    with pytest.raises(Conflict if status == 409 else Unavailable):
        await provider.resize(replace(pool.made, generation=2, request="R2"))


async def test_the_time_that_the_api_asks_for_is_waited(pool: Pool, front: Front, tmp_path: Path) -> None:
    clock = Listening()
    provider = ClusterApiProvider(by_file(str(behind(front, pool.kube, tmp_path))), clock, QUICK)
    front.answers = [(429, {"Retry-After": "7"})]
    await provider.create(pool.made)
    assert clock.slept == [pytest.approx(7.01)]


class Listening(SystemClock):
    """Does not wait, and knows how long it should have."""

    def __init__(self) -> None:
        super().__init__()
        self.slept: list[float] = []

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)


@pytest.mark.parametrize("method", ["POST", "PUT"])
async def test_a_write_that_acts_and_does_not_answer_is_made_once(
    pool: Pool, front: Front, tmp_path: Path, method: str
) -> None:
    short = RetryPolicy(answer_seconds=1.0, tries=3, backoff=doubling(0.01, 100.0))
    provider = pool.provider(behind(front, pool.kube, tmp_path), short)
    if method == "PUT":
        await provider.create(pool.made)
    front.swallows = [method]
    await provider.resize(replace(pool.made, generation=2, request="R2", capacity={"cpu": 12}))
    assert await pool.replicas() == {"farm-1": 3}
    assert front.requests.count(method) == 1
    front.swallows = ["GET"] * 3
    with pytest.raises(OutcomeUnknown):
        await provider.resize(replace(pool.made, generation=3, request="R3"))
