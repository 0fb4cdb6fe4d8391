"""Files that other processes read at any moment: writing by rename, and locks that end with their holder."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

from controlplane.aio.clock import chance

_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


def write_by_rename(file: Path, content: bytes) -> None:
    """Readers see the old or the new content, never a part. After an OSError no partial file is left behind."""
    folder = os.open(file.parent, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        write_by_rename_at(folder, file.name, content)
    finally:
        os.close(folder)


def write_durably(file: Path, content: bytes) -> None:
    """`write_by_rename`, and the new content outlives a crash of the machine."""
    folder = os.open(file.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        write_by_rename_at(folder, file.name, content, sync=True)
        os.fsync(folder)
    finally:
        os.close(folder)


def write_by_rename_at(folder: int, name: str, content: bytes, *, sync: bool = False) -> None:
    """`write_by_rename` into an open folder. A link, pipe or folder in the way is removed or moved, never followed."""
    new = f"{name}.new"
    _clear(folder, new)
    file = os.open(new, _NEW, 0o600, dir_fd=folder)
    try:
        _write(file, content)
        if sync:
            os.fsync(file)
    except OSError:
        os.unlink(new, dir_fd=folder)
        raise
    finally:
        os.close(file)
    try:
        os.rename(new, name, src_dir_fd=folder, dst_dir_fd=folder)
    except (IsADirectoryError, FileExistsError):
        _clear(folder, name)
        os.rename(new, name, src_dir_fd=folder, dst_dir_fd=folder)


def lock_file(path: Path) -> int | None:
    """A descriptor that holds the lock until closed or until the process dies; None while another process locks."""
    lock = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    if try_lock(lock):
        return lock
    os.close(lock)
    return None


def try_lock(descriptor: int) -> bool:
    """Whether the file is locked through the descriptor now."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _write(file: int, content: bytes) -> None:
    while content:
        content = content[os.write(file, content) :]


def _clear(folder: int, name: str) -> None:
    """Makes the name free. A folder may hold any number of files, and so is moved out of the way, not emptied."""
    try:
        os.unlink(name, dir_fd=folder)
    except FileNotFoundError:
        return
    except (IsADirectoryError, PermissionError):
        aside = f"{name}.aside-{chance(8).hex()}"
        os.rename(name, aside, src_dir_fd=folder, dst_dir_fd=folder)
