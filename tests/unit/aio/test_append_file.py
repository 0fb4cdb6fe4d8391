"""Lines that count as written are whole, whatever the disk did, and no link leads elsewhere."""

from __future__ import annotations

import os
import resource
import stat
import subprocess
import sys
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from controlplane.aio.append_file import STDOUT, AppendFile

# Far above the size of any other file which the process may write meanwhile.
FULL_BYTES = 1 << 30


def an_open_file(path: Path) -> AppendFile:
    file = AppendFile(str(path))
    file.reopen()
    return file


@contextmanager
def files_end_at(most_bytes: int) -> Iterator[None]:
    """As a full disk does, the system takes a part of a write up to the bound, and no more."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (most_bytes, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_lines_are_added_to_those_of_before_and_a_new_file_is_its_owners_alone(tmp_path: Path) -> None:
    path = tmp_path / "log"
    for line in (b"first\n", b"second\n"):
        file = an_open_file(path)
        file.append(deque([line]))
        file.close()
    assert path.read_bytes() == b"first\nsecond\n"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_a_link_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(OSError, match="symbolic links"):
        an_open_file(tmp_path / "link")
    assert not (tmp_path / "elsewhere").exists()


def test_children_do_not_inherit_the_file(tmp_path: Path) -> None:
    file = an_open_file(tmp_path / "log")
    descriptors = {link: Path(os.path.realpath(link)) for link in Path("/proc/self/fd").iterdir()}
    (opened,) = (link for link, path in descriptors.items() if path == (tmp_path / "log").resolve())
    assert not os.get_inheritable(int(opened.name))
    file.close()


def test_a_line_that_was_cut_off_is_written_again_on_a_line_of_its_own(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.touch()
    os.truncate(path, FULL_BYTES - 9)
    file, lines = an_open_file(path), deque([b"first\n", b"second\n", b"third\n"])
    with files_end_at(FULL_BYTES), pytest.raises(OSError, match="too large"):
        file.append(lines)
    assert list(lines) == [b"second\n", b"third\n"]
    file.append(lines)
    file.append(deque([b"fourth\n"]))
    file.close()
    with path.open("rb") as content:
        content.seek(FULL_BYTES - 9)
        assert content.read() == b"first\nsec\nsecond\nthird\nfourth\n"


def test_a_file_that_cannot_be_opened_anew_is_used_on(tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    file = an_open_file(folder / "log")
    folder.rename(tmp_path / "moved")
    with pytest.raises(FileNotFoundError):
        file.reopen()
    file.append(deque([b"line\n"]))
    file.close()
    assert (tmp_path / "moved" / "log").read_bytes() == b"line\n"


def test_a_file_that_was_never_open_keeps_the_lines() -> None:
    file, lines = AppendFile("/dev/null/log"), deque([b"line\n"])
    with pytest.raises(OSError, match="not open"):
        file.append(lines)
    assert (file.is_open, list(lines)) == (False, [b"line\n"])


def test_stdout_is_written_to_and_never_closed(capfd: pytest.CaptureFixture[str]) -> None:
    file = AppendFile(STDOUT)
    for line in (b"first\n", b"second\n"):
        file.reopen()
        file.append(deque([line]))
        file.close()
    assert capfd.readouterr().out == "first\nsecond\n"


def test_a_stdout_that_does_not_block_gets_all_lines() -> None:
    program = (
        "import os; from collections import deque; from controlplane.aio.append_file import AppendFile\n"
        "os.set_blocking(1, False); file = AppendFile('-'); file.reopen()\n"
        "file.append(deque(b'%099d\\n' % number for number in range(10_000)))"
    )
    done = subprocess.run([sys.executable, "-c", program], stdout=subprocess.PIPE, timeout=60, check=True)
    assert [int(line) for line in done.stdout.splitlines()] == list(range(10_000))
