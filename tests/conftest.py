"""Fixtures that every kind of test shares."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings

from tests.etcd import Etcd, running_etcd

# A run that gates a change tries the same examples each time; `scripts/test --long` looks for new ones.
settings.register_profile("repeatable", derandomize=True)
settings.register_profile("searching", derandomize=False)
settings.load_profile("repeatable")


@pytest.fixture
def etcd(tmp_path: Path) -> Iterator[Etcd]:
    """A fresh etcd for this test alone."""
    with running_etcd(tmp_path / "etcd") as started:
        yield started
