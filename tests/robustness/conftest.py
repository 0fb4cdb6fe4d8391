"""What the tests of faults tell: the load that was reached and how long it took to go on; after a failure, the logs."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.fault_reports import end_if_it_hangs, pytest_runtest_makereport, pytest_terminal_summary, tell

__all__ = ["pytest_collection_modifyitems", "pytest_runtest_makereport", "pytest_terminal_summary", "tell"]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.parent == Path(__file__).parent:
            end_if_it_hangs(item)
