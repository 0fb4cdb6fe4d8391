"""A watch on a folder: wakes when the folder changes, by inotify, or by a timer where inotify is not available.

Writes to files directly in the folder count, and files that appear there; changes in subfolders do not. A change is
noticed late rather than never: every wait also ends after a while.
"""

from __future__ import annotations

import asyncio
import ctypes
import os
from pathlib import Path

_MODIFY, _MOVED_TO, _CREATE = 0x2, 0x80, 0x100
_libc = ctypes.CDLL(None, use_errno=True)


class FolderWatch:
    """Must be closed on the event loop on which the watch was made."""

    def __init__(self, path: Path, look_seconds: float = 1.0) -> None:
        self._look_seconds = look_seconds
        self._changed = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        self._descriptor = _libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
        if self._descriptor < 0:
            return  # the user's limit of inotify instances is reached: the timer alone wakes
        _libc.inotify_add_watch(self._descriptor, os.fsencode(path), _MODIFY | _MOVED_TO | _CREATE)
        self._loop.add_reader(self._descriptor, self._hear)

    async def wait(self) -> None:
        """Returns when the folder changed since the last wait, or after `look_seconds`."""
        try:
            async with asyncio.timeout(self._look_seconds):
                await self._changed.wait()
        except TimeoutError:
            return
        finally:
            self._changed.clear()

    def close(self) -> None:
        if self._descriptor >= 0:
            self._loop.remove_reader(self._descriptor)
            os.close(self._descriptor)
            self._descriptor = -1

    def _hear(self) -> None:
        try:
            os.read(self._descriptor, 1 << 16)
        except BlockingIOError:
            return
        self._changed.set()
