"""The output of one attempt as the process driver keeps it: two files in its folder, read off the loop.

The files stay readable to whoever has begun to read them, also when the folder is removed meanwhile. A command may put
anything in their place: only plain files are read.
"""

from __future__ import annotations

import asyncio
import os
import stat
import threading

from controlplane.aio.folder_watch import FolderWatch
from controlplane.joblet.drivers.rundir import RunDir
from controlplane.joblet.log_source import LogQuery, Piece
from controlplane.model.errors import NotFound

_BLOCK = 64 << 10


class Output:
    """One file. `until` is how much of it is wanted when it is not followed."""

    def __init__(self, run: RunDir, stream: str, query: LogQuery) -> None:
        self.stream = stream
        self._path = run.path / stream
        self._query = query
        self._file = -1
        self._offset = 0
        self._until = 0

    def read(self, most: int) -> Piece | None:
        """Blocks for as long as the disk takes; None when there is nothing more now."""
        if self._file < 0 and not self._open():
            return None
        if not self._query.follow:
            most = min(most, self._until - self._offset)
        data = os.pread(self._file, most, self._offset) if most > 0 else b""
        if not data:
            return None
        piece = Piece(self.stream, self._offset, data)
        self._offset += len(data)
        return piece

    def close(self) -> None:
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    def _open(self) -> bool:
        flags = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
        try:
            self._file = os.open(self._path, flags)
        except FileNotFoundError:
            return False
        found = os.fstat(self._file)
        if not stat.S_ISREG(found.st_mode):
            self.close()
            raise NotFound(f"{self.stream} is no plain file any more")
        self._until = found.st_size
        start = self._query.start_of(self.stream)
        if start is not None:
            self._offset = start
        elif self._query.tail_lines:
            self._offset = tail_start(self._file, found.st_size, self._query.tail_lines)
        return True


class RunLog:
    """Both outputs of one attempt, or one of them."""

    def __init__(self, run: RunDir, query: LogQuery) -> None:
        self._run = run
        self._follow = query.follow
        self._outputs = [Output(run, stream, query) for stream in query.streams]
        self._watch: FolderWatch | None = FolderWatch(run.path) if query.follow else None
        # A read that nobody waits for any more may still be under way when the files are closed.
        self._using = threading.Lock()
        self._closed = False

    async def read(self, most: int) -> Piece | None:
        while True:
            over, piece = await asyncio.to_thread(self._next, most)
            if piece is not None or over:
                return piece
            assert self._watch is not None
            await self._watch.wait()

    def close(self) -> None:
        if self._watch is not None:
            self._watch.close()
        asyncio.get_running_loop().run_in_executor(None, self._close_files)

    def _close_files(self) -> None:
        with self._using:
            self._closed = True
            for output in self._outputs:
                output.close()

    def _next(self, most: int) -> tuple[bool, Piece | None]:
        """Whether nothing will be written any more, which was found out before the read."""
        with self._using:
            if self._closed:
                return True, None
            over = not self._follow or self._run.end() is not None or not self._run.path.exists()
            for output in self._outputs:
                piece = output.read(most)
                if piece is None:
                    continue
                if self._follow and piece.data.endswith(b"\n"):
                    # One that writes without end must not silence the other.
                    self._outputs.reverse()
                return False, piece
            return over, None


def tail_start(file: int, size: int, lines: int) -> int:
    """Where the last lines begin; a line that is not finished counts as one."""
    left = lines + 1
    end = size
    if size and os.pread(file, 1, size - 1) != b"\n":
        left -= 1
    while end > 0:
        begin = max(0, end - _BLOCK)
        block = os.pread(file, end - begin, begin)
        found = block.count(b"\n")
        if found < left:
            left -= found
            end = begin
            continue
        at = len(block)
        for _ in range(left):
            at = block.rindex(b"\n", 0, at)
        return begin + at + 1
    return 0
