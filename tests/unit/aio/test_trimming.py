"""Files that others append to, kept below a bound."""

from __future__ import annotations

import os
from pathlib import Path

from controlplane.aio.trimming import trim
from controlplane.standalone.supervisor import MOST_LOG_BYTES, trim_all


def test_a_small_file_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "a.log").write_text("12345")
    assert not trim(tmp_path / "a.log", 5)
    assert [path.name for path in tmp_path.iterdir()] == ["a.log"]
    assert not trim(tmp_path / "none.log", 5)


def test_a_large_one_is_emptied_under_its_writer_and_kept_once(tmp_path: Path) -> None:
    path = tmp_path / "a.log"
    with path.open("ab", buffering=0) as writer:
        for text in (b"first", b"second"):
            writer.write(text)
            assert trim(path, 4)
        writer.write(b"3")
    assert path.read_bytes() == b"3"
    assert (tmp_path / "a.log.1").read_bytes() == b"second"


def test_where_no_copy_can_be_made_it_is_emptied_all_the_same(tmp_path: Path) -> None:
    path = tmp_path / "a.log"
    path.write_text("too much")
    (tmp_path / "a.log.1").symlink_to("/dev/full")
    assert trim(path, 4)
    assert path.read_bytes() == b""


def test_the_logs_of_up_are_kept_small(tmp_path: Path) -> None:
    for name in ("up", "etcd"):
        (tmp_path / f"{name}.log").touch()
    os.truncate(tmp_path / "etcd.log", MOST_LOG_BYTES + 1)
    trim_all(tmp_path)
    assert (tmp_path / "etcd.log").stat().st_size == 0
    assert sorted(path.name for path in tmp_path.iterdir()) == ["etcd.log", "etcd.log.1", "up.log"]
