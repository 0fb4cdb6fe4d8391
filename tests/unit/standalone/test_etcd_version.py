"""Which etcd may run on what another one left, what is shown when it does not, and what restores."""

from __future__ import annotations

from pathlib import Path

import pytest

from controlplane.model.errors import Refused, Unavailable
from controlplane.standalone import layout as files
from controlplane.standalone import snapshots
from controlplane.standalone.layout import Layout
from tests.unit.standalone.test_etcd_binary import binary


@pytest.fixture
def layout(tmp_path: Path) -> Layout:
    made = Layout(tmp_path / "data")
    made.make()
    made.etcd.mkdir()
    return made


@pytest.mark.parametrize("now", [(3, 4, 23), (3, 4, 30), (3, 4, 0), (3, 5, 30)])
def test_the_same_minor_version_and_the_next_take_over(layout: Layout, now: files.Version) -> None:
    layout.note_etcd((3, 4, 23))
    layout.check_etcd(now)


@pytest.mark.parametrize("now", [(3, 6, 0), (3, 7, 1), (4, 0, 0), (4, 5, 0)])
def test_a_minor_version_that_was_skipped_is_refused_with_the_way_out(layout: Layout, now: files.Version) -> None:
    layout.note_etcd((3, 4, 23))
    with pytest.raises(Refused, match="no minor version may be skipped") as refused:
        layout.check_etcd(now)
    assert "3.4.23" in str(refused.value)
    assert "cpctl backup FILE" in str(refused.value)
    assert "cpctl restore FILE --force" in str(refused.value)


def test_a_step_back_is_refused_with_the_way_out(layout: Layout) -> None:
    layout.note_etcd((3, 5, 30))
    with pytest.raises(Refused, match="no way back"):
        layout.check_etcd((3, 4, 23))


@pytest.mark.parametrize("noted", [None, "", "nonsense", "3.4"])
def test_a_folder_that_does_not_tell_is_tried(layout: Layout, noted: str | None) -> None:
    if noted is not None:
        layout.etcd_version.write_text(noted)
    layout.check_etcd((3, 7, 1))


def test_a_version_without_data_binds_nobody(layout: Layout) -> None:
    layout.note_etcd((3, 4, 23))
    layout.etcd.rmdir()
    layout.check_etcd((3, 7, 1))


def test_the_line_that_says_why_comes_before_the_end_of_the_log(tmp_path: Path) -> None:
    log = tmp_path / "etcd.log"
    stack = "\n".join(f"\tgo.etcd.io/etcd/server.go:{number}" for number in range(40))
    log.write_text(f"started\npanic: unmarshal should never fail\n\ngoroutine 1 [running]:\n{stack}\n")
    lines = files.tail(log).splitlines()
    assert lines[0] == "panic: unmarshal should never fail"
    assert lines[-1].endswith("server.go:39")
    assert len(lines) == 16


def test_a_log_that_gives_no_reason_shows_its_end_once(tmp_path: Path) -> None:
    log = tmp_path / "etcd.log"
    log.write_text("".join(f"line {number}\n" for number in range(40)) + "panic: at the end\n")
    assert files.tail(log).splitlines() == [*(f"line {number}" for number in range(26, 40)), "panic: at the end"]


def tools(folder: Path, monkeypatch: pytest.MonkeyPatch, version: str, *names: str) -> None:
    monkeypatch.setenv("PATH", str(folder / "bin"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(folder / "cache"))
    binary(folder / "bin" / "etcd", version)
    for name in names:
        binary(folder / "bin" / name, version)


def test_a_newer_etcd_restores_with_etcdutl_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tools(tmp_path, monkeypatch, "3.6.14", "etcdctl")
    with pytest.raises(Unavailable, match=r"etcdutl is needed \(it comes with etcd\)"):
        snapshots._tool()
    tools(tmp_path, monkeypatch, "3.6.14", "etcdctl", "etcdutl")
    assert snapshots._tool() == [str(tmp_path / "bin" / "etcdutl")]


def test_an_older_etcd_restores_with_etcdctl_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tools(tmp_path, monkeypatch, "3.4.23", "etcdctl")
    assert snapshots._tool() == [str(tmp_path / "bin" / "etcdctl")]
