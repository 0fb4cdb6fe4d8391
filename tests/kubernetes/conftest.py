"""A real API server for all tests here; without a binary they are skipped, and say how to run them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Generator, Iterator
from functools import cache
from pathlib import Path

import pytest

from tests.kubernetes.kubelet import Cluster
from tests.kubernetes.server import KubeServer, find_binary, running_server

# What has a bound has it in the test; this only ends a test that hangs.
_TEST_SECONDS = 300
_TAIL = 60
_TOLD = pytest.StashKey[list[str]]()

Tell = Callable[[str], None]


@pytest.fixture
def tell(request: pytest.FixtureRequest) -> Tell:
    """Shows a line at the end of the run."""
    told = request.config.stash.setdefault(_TOLD, [])
    return lambda line: told.append(f"{request.node.name}: {line}")


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    for line in config.stash.get(_TOLD, []):
        terminalreporter.write_line(line)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """After a failure, what the parts said."""
    report = yield
    folder = getattr(item, "funcargs", {}).get("tmp_path")
    if report.failed and isinstance(folder, Path):
        for log in sorted(folder.glob("*/*.log")):
            tail = log.read_text(errors="replace").splitlines()[-_TAIL:]
            report.sections.append((log.name, "\n".join(tail)))
    return report


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
            if item.get_closest_marker("timeout") is None:
                item.add_marker(pytest.mark.timeout(_TEST_SECONDS))


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
