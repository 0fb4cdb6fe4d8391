"""The folders of commands that run as another user (`--run-as`), apart from the folder of their joblet.

AREA/<attempt>       the joblet's, mode 0710, with the group of the attempt: only that attempt's processes may enter
AREA/<attempt>/run   the command's: its working folder, its mounted files, progress, artefacts, temporary files

The joblet's own folder stays closed to the user of the commands. Specs, evidence, ends and output of attempts are
there, so a command can neither change nor replace them. The joblet writes below AREA/<attempt>/run only before the
command starts and after all of its processes are gone; in between, it reads through `task_files`.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import stat
from collections.abc import Collection, Iterable
from pathlib import Path

from controlplane.aio.clock import chance
from controlplane.aio.files import lock_file
from controlplane.joblet.drivers.process.task_user import FIELD, FIRST_GROUP, TaskGroups, TaskUser
from controlplane.model.errors import AlreadyExists, Invalid

_RUN, _LOCK = "run", "lock"
# Passed through by name, not listed.
_AREA_MODE, _ENTRY_MODE, _RUN_MODE, _FILE_MODE = 0o711, 0o710, 0o700, 0o400
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_WRITABLE_BY_OTHERS = stat.S_IWGRP | stat.S_IWOTH


class TaskHome:
    """The folder of one attempt in the area."""

    def __init__(self, entry: Path, uid: int, gid: int) -> None:
        self.entry = entry
        self.path = entry / _RUN
        self.uid = uid
        self.gid = gid

    def make(self) -> None:
        """Opened to the group of the attempt last, when everything in it belongs to the user. Raises OSError."""
        with contextlib.suppress(FileNotFoundError):
            os.lstat(self.entry)
            remove_area_entry(self.entry)
        os.mkdir(self.entry, 0o700)
        for folder in (self.path, self.path / "work", self.path / "tmp"):
            os.mkdir(folder, _RUN_MODE)
            os.chown(folder, self.uid, self.gid)
        os.chown(self.entry, -1, self.gid)
        os.chmod(self.entry, _ENTRY_MODE)

    def place_files(self, contents: Iterable[str]) -> None:
        folder = self.path / "files"
        for number, text in enumerate(contents):
            if number == 0:
                os.mkdir(folder, _RUN_MODE)
                os.chown(folder, self.uid, self.gid)
            descriptor = os.open(folder / str(number), _NEW, _FILE_MODE)
            with open(descriptor, "w", encoding="utf-8") as file:
                file.write(text)
                file.flush()
                os.fchown(descriptor, self.uid, self.gid)

    def empty(self) -> None:
        """Removes the files that the command made. No process of the attempt lives."""
        remove_area_entry(self.path / "work")

    def remove(self) -> None:
        remove_area_entry(self.entry)


class TaskArea:
    """The area of one joblet, held by a lock while the joblet lives."""

    def __init__(self, path: Path, user: TaskUser) -> None:
        self.path = path
        self.user = user
        self._lock = _prepare(path, user)
        entries = [entry for entry in os.scandir(path) if entry.name != _LOCK]
        taken = [entry.stat(follow_symlinks=False).st_gid for entry in entries]
        self._groups = TaskGroups(int.from_bytes(chance(4), "big"), (gid for gid in taken if gid >= FIRST_GROUP))

    def close(self) -> None:
        os.close(self._lock)

    def new_home(self, name: str) -> TaskHome:
        return TaskHome(self.path / name, self.user.uid, self._groups.take())

    def keep_only(self, names: Collection[str]) -> None:
        """Removes folders whose attempts are not known any more."""
        for entry in os.scandir(self.path):
            if entry.name not in names and entry.stat(follow_symlinks=False).st_gid >= FIRST_GROUP:
                remove_area_entry(self.path / entry.name)


def remove_area_entry(path: Path) -> None:
    """No process of the attempt lives. Links are not followed; this process may remove files of any user."""
    with contextlib.suppress(OSError):
        if stat.S_ISDIR(os.lstat(path).st_mode):
            shutil.rmtree(path, ignore_errors=True)
        else:
            os.unlink(path)


def _prepare(path: Path, user: TaskUser) -> int:
    """Makes the area, checks that the user can enter it and cannot replace it, and locks it."""
    try:
        path.mkdir(mode=_AREA_MODE, parents=True, exist_ok=True)
        _check_above(path, user)
        status = os.lstat(path)
        if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.geteuid():
            raise Invalid("task_dir", f"{path} must be a folder that belongs to the user who runs the joblet")
        if not (path / _LOCK).exists() and os.listdir(path):
            raise Invalid("task_dir", f"{path} must be a folder for nothing else, and holds other files")
        lock = lock_file(path / _LOCK)
        if lock is None:
            raise AlreadyExists(f"another joblet uses {path}: one folder is for one joblet", field="task_dir")
        os.chmod(path, _AREA_MODE)
    except OSError as error:
        raise Invalid("task_dir", f"{path} cannot be prepared: {error.strerror}") from None
    return lock


def _check_above(path: Path, user: TaskUser) -> None:
    """Whoever may write to a folder above could put another folder in the place of the area."""
    for folder in path.parents:
        status = folder.stat()
        if status.st_uid not in (0, os.geteuid()):
            raise Invalid("task_dir", f"{folder} above it belongs to another user, who could replace {path}")
        if status.st_mode & _WRITABLE_BY_OTHERS and not status.st_mode & stat.S_ISVTX:
            raise Invalid("task_dir", f"{folder} above it can be written by others, who could replace {path}")
        in_group = status.st_gid in user.groups
        if not status.st_mode & (stat.S_IXGRP if in_group else stat.S_IXOTH):
            rule = f"{FIELD} {user.name} cannot enter {folder}: name a folder that the user can reach with --task-dir"
            raise Invalid("task_dir", rule)
