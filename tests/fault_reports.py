"""Reports of the tests of faults: lines that a test tells, the logs of its parts after a failure, an end of what hangs.

The conftests of `robustness` and `kubernetes` take the fixture and the hooks from here.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from pathlib import Path

import pytest

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
    """Each line once, although every conftest that has this hook shows them."""
    told = config.stash.get(_TOLD, [])
    for line in told:
        terminalreporter.write_line(line)
    told.clear()


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


def end_if_it_hangs(item: pytest.Item) -> None:
    if item.get_closest_marker("timeout") is None:
        item.add_marker(pytest.mark.timeout(_TEST_SECONDS))
