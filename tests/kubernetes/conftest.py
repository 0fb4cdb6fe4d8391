"""A real API server for all tests here; without a binary they are skipped, and say how to run them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from functools import cache
from pathlib import Path

import pytest

from tests.fault_reports import end_if_it_hangs, pytest_runtest_makereport, pytest_terminal_summary, tell
from tests.kubernetes.kubelet import Cluster
from tests.kubernetes.server import KubeServer, find_binary, running_server

__all__ = ["binary_or_skip", "cluster", "kube", "pytest_collection_modifyitems", "pytest_runtest_makereport",
           "pytest_terminal_summary", "second_kube", "tell"]  # fmt: skip


@cache
def binary_or_skip() -> str:
    """The one place that says why these tests do not run."""
    found = find_binary()
    if found is None:
        pytest.skip("no kube-apiserver: scripts/test --kubernetes builds one and runs these", allow_module_level=True)
    return found


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.parent == Path(__file__).parent:
            item.add_marker(pytest.mark.kubernetes)
            end_if_it_hangs(item)


@pytest.fixture(scope="session")
def kube(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KubeServer]:
    """One cluster for all tests of the run: each takes a namespace or a target name of its own."""
    with running_server(binary_or_skip(), tmp_path_factory.mktemp("kube")) as server:
        yield server


@pytest.fixture(scope="session")
def second_kube(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KubeServer]:
    """Another cluster."""
    with running_server(binary_or_skip(), tmp_path_factory.mktemp("kube-2")) as server:
        yield server


@pytest.fixture
async def cluster(kube: KubeServer) -> AsyncIterator[Cluster]:
    """The administrator of `kube`."""
    async with Cluster(kube) as administrator:
        yield administrator
