"""The only way to open a file in the folder of an attempt, where a command may put anything in any file's place.

A command shares the folder with its shim and its joblet, and all three may be the same user. So no file in the folder
is trusted by its name: a file is opened without following links, without leaving the folder's file system, without
waiting for another process (a FIFO, a lease), and is read only when it is a plain file of the expected user, up to a
bound that the caller gives. Anything else under the name counts as missing. A written file takes its name by rename,
and whatever stands in the way is put aside, never followed, never waited for.

Reading raises OSError only when this process lacks something (`is_exhausted`): the same read may work a moment later.
"""

from __future__ import annotations

import ctypes
import errno
import os
import stat
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from controlplane.aio.files import write_by_rename_at

_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY
_FOLDER = os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
# openat2 of Linux 5.6: no other mount, no link of any kind, nothing above the folder.
_OPENAT2 = 437
_RESOLVE_BENEATH_WITHOUT_LINKS_OR_MOUNTS = 0x01 | 0x02 | 0x04 | 0x08
_PROCESS_LACKS = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ENOBUFS})
# A disk that is full, broken or read-only, and a fork that the system refuses for now.
_MACHINE_LACKS = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS, errno.EIO, errno.EAGAIN})
_libc = ctypes.CDLL(None, use_errno=True)


class _How(ctypes.Structure):
    _fields_ = (("flags", ctypes.c_uint64), ("mode", ctypes.c_uint64), ("resolve", ctypes.c_uint64))


def is_exhausted(number: int | None) -> bool:
    """Whether the error number means that the machine or this process has run out of something, for now."""
    return number in _PROCESS_LACKS or number in _MACHINE_LACKS


def open_plain(folder: Path, name: str, *, owner: int | None = None) -> int | None:
    """A descriptor of a plain file of that user (by default of this process's), None when there is no such file."""
    try:
        file = open_within(folder, name, _READ)
    except OSError as error:
        if error.errno in _PROCESS_LACKS:
            raise
        return None
    status = os.fstat(file)
    if stat.S_ISREG(status.st_mode) and status.st_uid == (os.geteuid() if owner is None else owner):
        return file
    os.close(file)
    return None


def holds(folder: Path, name: str = "") -> bool:
    """Whether the folder has anything under that name, or, without a name, whether the folder itself exists."""
    try:
        os.close(open_folder(folder) if not name else open_within(folder, name, os.O_PATH | os.O_CLOEXEC))
    except OSError as error:
        if error.errno in _PROCESS_LACKS:
            raise
        # A link counts as there, wherever it leads.
        return bool(name) and error.errno == errno.ELOOP
    return True


def open_folder(folder: Path) -> int:
    """A descriptor of the folder; raises OSError when the folder is gone or replaced by anything else."""
    return _open_beneath(folder.parent, (folder.name,), _FOLDER)


def read_head(folder: Path, name: str, most: int, *, owner: int | None = None) -> bytes | None:
    """The beginning of the file, at most so many bytes; None when there is no such plain file."""
    with _opened(folder, name, owner) as file:
        return None if file is None else _read(file, most, 0)


def read_tail(folder: Path, name: str, most: int, *, owner: int | None = None) -> bytes:
    """The end of the file, at most so many bytes; empty when there is no such plain file."""
    with _opened(folder, name, owner) as file:
        return b"" if file is None else _read(file, most, max(0, os.fstat(file).st_size - most))


def put(folder: Path, name: str, content: bytes) -> None:
    """Readers see the old file or the new file, never a part. Raises OSError, and leaves no new file behind then."""
    inside = open_folder(folder)
    try:
        write_by_rename_at(inside, name, content)
    finally:
        os.close(inside)


def open_within(folder: Path, name: str, flags: int, mode: int = 0o600) -> int:
    """Opens the file of that very name in the folder; raises OSError when a link or a mount is on the way."""
    return _open_beneath(folder.parent, (folder.name, name), flags, mode)


def _open_beneath(above: Path, steps: Sequence[str], flags: int, mode: int = 0) -> int:
    at = os.open(above, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        how = _How(flags | os.O_NOFOLLOW, mode if flags & os.O_CREAT else 0, _RESOLVE_BENEATH_WITHOUT_LINKS_OR_MOUNTS)
        path = os.fsencode("/".join(steps))
        file = int(_libc.syscall(_OPENAT2, at, path, ctypes.byref(how), ctypes.sizeof(how)))
        number = ctypes.get_errno()
        if file >= 0:
            return file
        if number not in (errno.ENOSYS, errno.EPERM):
            raise OSError(number, os.strerror(number), str(above.joinpath(*steps)))
        return _open_step_by_step(at, steps, flags, mode)
    finally:
        os.close(at)


def _open_step_by_step(at: int, steps: Sequence[str], flags: int, mode: int) -> int:
    """For kernels without openat2, and sandboxes that forbid the call: links are refused, mounts are not."""
    if len(steps) == 1:
        return os.open(steps[0], flags | os.O_NOFOLLOW, mode, dir_fd=at)
    inside = os.open(steps[0], _FOLDER, dir_fd=at)
    try:
        return _open_step_by_step(inside, steps[1:], flags, mode)
    finally:
        os.close(inside)


@contextmanager
def _opened(folder: Path, name: str, owner: int | None) -> Iterator[int | None]:
    file = open_plain(folder, name, owner=owner)
    try:
        yield file
    finally:
        if file is not None:
            os.close(file)


def _read(file: int, most: int, offset: int) -> bytes:
    """Fewer bytes when the file is cut short meanwhile, none when the disk cannot be read."""
    parts: list[bytes] = []
    while most > 0:
        try:
            part = os.pread(file, most, offset)
        except OSError:
            break
        if not part:
            break
        parts.append(part)
        most, offset = most - len(part), offset + len(part)
    return b"".join(parts)
