"""What the tests of faults tell: the load that was reached and how long it took to go on; after a failure, the logs."""

from __future__ import annotations

from collections.abc import Callable, Generator
from pathlib import Path

import pytest

Tell = Callable[[str], None]

_TOLD = pytest.StashKey[list[str]]()
_TAIL = 60
# What has a bound has it in the test; this only ends a test that hangs.
_TEST_SECONDS = 300


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.parent == Path(__file__).parent and item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(_TEST_SECONDS))


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
    report = yield
    folder = getattr(item, "funcargs", {}).get("tmp_path")
    if report.failed and isinstance(folder, Path):
        for log in sorted(folder.glob("*/*.log")):
            tail = log.read_text(errors="replace").splitlines()[-_TAIL:]
            report.sections.append((log.name, "\n".join(tail)))
    return report
