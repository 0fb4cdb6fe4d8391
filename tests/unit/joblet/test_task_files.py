"""Files in the folder of an attempt, whatever its command puts in their place."""

from __future__ import annotations

import errno
import os
import resource
import socket
from collections.abc import Callable
from pathlib import Path

import pytest

from controlplane.joblet import task_files

MOST = 100


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "runs" / "a-run"
    folder.mkdir(parents=True)
    return folder


def a_socket(path: Path) -> None:
    os.chdir(path.parent)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(path.name)


STRANGE: dict[str, Callable[[Path], object]] = {
    "a FIFO": os.mkfifo,
    "a folder": Path.mkdir,
    "a link": lambda path: path.symlink_to("/etc/hostname"),
    "a link to nothing": lambda path: path.symlink_to("nowhere"),
    "a link to itself": lambda path: path.symlink_to(path.name),
    "a socket": a_socket,
}


@pytest.mark.parametrize("strange", STRANGE.values(), ids=STRANGE)
def test_what_is_no_plain_file_is_not_read_and_keeps_nobody_waiting(
    folder: Path, strange: Callable[[Path], object], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder)
    strange(folder / "progress")
    assert task_files.read_head(folder, "progress", MOST) is None
    assert task_files.read_tail(folder, "progress", MOST) == b""
    assert task_files.holds(folder, "progress")


@pytest.mark.parametrize("strange", STRANGE.values(), ids=STRANGE)
def test_what_is_written_takes_the_place_of_anything(
    folder: Path, strange: Callable[[Path], object], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder)
    strange(folder / "stop.json")
    strange(folder / "stop.json.new")
    task_files.put(folder, "stop.json", b"{}")
    assert task_files.read_head(folder, "stop.json", MOST) == b"{}"
    assert not (folder / "stop.json").is_symlink()


def test_only_so_much_is_read_however_large_a_file_is(folder: Path) -> None:
    (folder / "progress").write_bytes(b"begin")
    os.truncate(folder / "progress", 1 << 40)
    assert task_files.read_head(folder, "progress", 7) == b"begin\0\0"
    assert task_files.read_tail(folder, "progress", 7) == bytes(7)


def test_a_file_of_another_user_is_not_read(folder: Path) -> None:
    (folder / "stderr").write_text("secret")
    assert task_files.open_plain(folder, "stderr", owner=os.geteuid() + 1) is None
    file = task_files.open_plain(folder, "stderr")
    assert file is not None
    os.close(file)


def test_a_link_in_place_of_the_folder_leads_nowhere(folder: Path) -> None:
    (folder / "progress").write_text("50")
    folder.rename(folder.with_name("elsewhere"))
    folder.symlink_to("elsewhere")
    assert task_files.read_tail(folder, "progress", MOST) == b""
    assert not task_files.holds(folder)
    with pytest.raises(OSError, match=r"symbolic links|Not a directory"):
        task_files.put(folder, "stop.json", b"{}")


def test_a_name_does_not_lead_out_of_the_folder(folder: Path) -> None:
    (folder.parent.parent / "secret").write_text("s")
    assert task_files.read_head(folder, "../../secret", MOST) is None


def test_what_this_process_lacks_is_told_and_not_taken_for_a_missing_file(folder: Path) -> None:
    (folder / "progress").write_text("50")
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (3, before[1]))
    try:
        with pytest.raises(OSError, match="Too many open files") as caught:
            task_files.read_tail(folder, "progress", MOST)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
    assert task_files.is_exhausted(caught.value.errno)
    assert not task_files.is_exhausted(errno.ENOENT)


def test_without_openat2_links_are_not_followed_either(folder: Path) -> None:
    """As on kernels before 5.6, and in sandboxes that forbid it."""
    (folder / "plain").write_text("1")
    (folder / "link").symlink_to("plain")
    above = os.open(folder.parent, os.O_PATH | os.O_DIRECTORY)
    try:
        os.close(task_files._open_step_by_step(above, (folder.name, "plain"), os.O_RDONLY, 0))
        with pytest.raises(OSError, match="symbolic links"):
            task_files._open_step_by_step(above, (folder.name, "link"), os.O_RDONLY, 0)
    finally:
        os.close(above)
