"""Tells when something changes in one folder: inotify, and where that is not to be had, now and then.

What is written to a file right in the folder counts, and files that appear there; not what is deeper. A change is told
late rather than never: waiting also ends after a while.
"""

from __future__ import annotations

import asyncio
import ctypes
import os
from pathlib import Path

_MODIFY, _MOVED_TO, _CREATE = 0x2, 0x80, 0x100
_libc = ctypes.CDLL(None, use_errno=True)


class FolderWatch:
    """Must be closed on the loop that it was made on."""

    def __init__(self, path: Path, look_seconds: float = 1.0) -> None:
        self._look_seconds = look_seconds
        self._changed = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        self._descriptor = _libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
        if self._descriptor < 0:
            return  # a user may have few of these; then it looks now and then
        _libc.inotify_add_watch(self._descriptor, os.fsencode(path), _MODIFY | _MOVED_TO | _CREATE)
        self._loop.add_reader(self._descriptor, self._hear)

    async def wait(self) -> None:
        """Until something changed since the last wait, or it is time to look anyhow."""
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
