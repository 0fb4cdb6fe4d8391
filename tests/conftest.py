"""Fixtures that every kind of test shares."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.etcd import Etcd, running_etcd


@pytest.fixture
def etcd(tmp_path: Path) -> Iterator[Etcd]:
    """A fresh etcd for this test alone."""
    with running_etcd(tmp_path / "etcd") as started:
        yield started
