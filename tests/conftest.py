"""Fixtures that every kind of test shares."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings

from controlplane.standalone import etcd_binary
from tests.etcd import Etcd, running_etcd

# A run that gates a change tries the same examples each time; `scripts/test --long` looks for new ones. How long one
# takes says nothing: the machine may be busy.
settings.register_profile("repeatable", derandomize=True, deadline=None)
settings.register_profile("searching", derandomize=False, deadline=None)
settings.load_profile("repeatable")


class NoSkips:
    """With --no-skips a run in which a test was skipped fails, and says which."""

    def __init__(self) -> None:
        self._skipped: list[str] = []

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.skipped and not hasattr(report, "wasxfail"):
            self._skipped.append(report.nodeid)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.skipped:
            self._skipped.append(report.nodeid)

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        if self._skipped and session.exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        if self._skipped:
            terminalreporter.section("skipped, which counts as failed here", red=True)
            for name in self._skipped:
                terminalreporter.line(name)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--no-skips", action="store_true", help="a skipped test counts as failed")


def pytest_configure(config: pytest.Config) -> None:
    if config.getoption("--no-skips"):
        config.pluginmanager.register(NoSkips())
    wanted = os.environ.get("CONTROLPLANE_TEST_ETCD")
    # Workers of one run inherit the path.
    if wanted and not hasattr(config, "workerinput"):
        major, minor = wanted.split(".")
        binary = etcd_binary.provide_minor((int(major), int(minor)))
        os.environ["PATH"] = f"{Path(binary.path).parent}{os.pathsep}{os.environ['PATH']}"


def pytest_report_header() -> str:
    return etcd_binary.find().sentence()


@pytest.fixture
def etcd(tmp_path: Path) -> Iterator[Etcd]:
    """A fresh etcd for this test alone."""
    with running_etcd(tmp_path / "etcd") as started:
        yield started
