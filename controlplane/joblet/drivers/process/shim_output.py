"""The output of a command, carried from two pipes into two files by a thread of its shim. Part of `shim`, and as lean.

The command never waits for a full disk and never gets an error: bytes that cannot be written are left out. Each file
keeps its last `limit` bytes, all bytes when the limit is 0. A byte is always at its own offset in the file: bytes that
were left out are a hole there, which takes no space and which readers can tell from written bytes. Where a file system
has no holes, the bytes after the limit are left out instead.
"""

from __future__ import annotations

import _thread
import ctypes
import os
import select

_CHUNK = 1 << 16
# Holes begin and end at multiples of this, which every file system's blocks fit into.
_BLOCK = 1 << 16
_KEEP_SIZE, _PUNCH_HOLE = 1, 2
_fallocate = ctypes.CDLL(None, use_errno=True).fallocate
_fallocate.argtypes = (ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64)


class OutputFile:
    """`offset` is where the next byte belongs; bytes before `freed` are not kept."""

    def __init__(self, path: str, limit: int) -> None:
        self.path = path
        self.limit = limit
        self.offset = 0
        self.freed = 0
        self.file = -1
        self.has_holes = True
        self.open()

    def open(self) -> bool:
        """Tried again with the next bytes after a failure. A command may have put a link there by then."""
        if self.file < 0:
            try:
                flags = os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
                self.file = os.open(self.path, flags, 0o600)
            except OSError:
                return False
        return True

    def take(self, data: bytes) -> None:
        at, self.offset = self.offset, self.offset + len(data)
        if not self.open() or (self.limit and not self.has_holes and self.offset > self.limit):
            return
        try:
            while data:
                written = os.pwrite(self.file, data, at)
                data, at = data[written:], at + written
        except OSError:
            pass
        if self.limit and self.offset - self.freed > self.limit + max(_BLOCK, self.limit // 8):
            self.free()

    def free(self) -> None:
        upto = (self.offset - self.limit) // _BLOCK * _BLOCK
        if _fallocate(self.file, _PUNCH_HOLE | _KEEP_SIZE, self.freed, upto - self.freed):
            self.has_holes = False
        else:
            self.freed = upto

    def close(self) -> None:
        """The size of the file covers all output, also when the last bytes were left out."""
        if self.file < 0:
            return
        try:
            if os.fstat(self.file).st_size < self.offset:
                os.ftruncate(self.file, self.offset)
        except OSError:
            pass
        os.close(self.file)
        self.file = -1


class Pump:
    """`ends` are the pipe ends for the command, which the shim closes once the command has inherited them."""

    def __init__(self, paths: tuple[str, str], limit: int) -> None:
        pipes = [os.pipe2(os.O_CLOEXEC) for _ in paths]
        self.ends = tuple(end for _, end in pipes)
        self._files = {pipe: OutputFile(path, limit) for (pipe, _), path in zip(pipes, paths)}  # noqa: B905
        self._carrying = _thread.allocate_lock()

    def start(self) -> None:
        for end in self.ends:
            os.close(end)
        self._carrying.acquire()
        _thread.start_new_thread(self._carry, ())

    def finish(self, seconds: float) -> None:
        """Returns when all output is in the files, or after that time if a process still has a pipe open."""
        self._carrying.acquire(True, seconds)

    def _carry(self) -> None:
        poll = select.poll()
        for pipe in self._files:
            poll.register(pipe, select.POLLIN)
        while self._files:
            for pipe, _ in poll.poll():
                data = os.read(pipe, _CHUNK)
                if data:
                    self._files[pipe].take(data)
                    continue
                poll.unregister(pipe)
                os.close(pipe)
                self._files.pop(pipe).close()
        self._carrying.release()
