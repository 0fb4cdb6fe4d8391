"""Files are replaced whole, whatever stands in their place, and a lock has one holder."""

from __future__ import annotations

import os
from pathlib import Path

from controlplane.aio.files import lock_file, write_by_rename


def test_a_file_is_replaced_and_its_readers_keep_the_old_content(tmp_path: Path) -> None:
    file = tmp_path / "file"
    write_by_rename(file, b"old")
    with file.open("rb") as reader:
        write_by_rename(file, b"new")
        assert reader.read() == b"old"
    assert file.read_bytes() == b"new"
    assert os.listdir(tmp_path) == ["file"]


def test_a_folder_in_the_way_is_put_aside(tmp_path: Path) -> None:
    for name in ("file", "file.new"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "inside").touch()
    write_by_rename(tmp_path / "file", b"new")
    assert (tmp_path / "file").read_bytes() == b"new"
    assert len(list(tmp_path.glob("*.aside-*/inside"))) == 2


def test_a_lock_has_one_holder_until_it_is_closed(tmp_path: Path) -> None:
    first = lock_file(tmp_path / "lock")
    assert first is not None
    assert lock_file(tmp_path / "lock") is None
    os.close(first)
    second = lock_file(tmp_path / "lock")
    assert second is not None
    os.close(second)
