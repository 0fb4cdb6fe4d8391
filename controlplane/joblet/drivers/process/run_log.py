"""The output of one attempt as the process driver keeps it: two files in its folder, read off the loop.

A reader that has begun keeps its files readable when the folder is removed meanwhile. A command may put anything in the
place of the files: only plain files are read. Output that the shim left out, because it was too much or the disk was
full, is a hole in the file; a line in its place names the number of bytes, and ends where the hole ends.
"""

from __future__ import annotations

import asyncio
import errno
import os
import threading
from pathlib import Path

from controlplane.aio.folder_watch import FolderWatch
from controlplane.joblet import task_files
from controlplane.joblet.drivers.process.rundir import RunDir
from controlplane.joblet.log_source import LogQuery, OutputPiece
from controlplane.model.errors import NotFound

_BLOCK = 64 << 10
# The last lines are searched in so many last bytes: a command can make a file of any size in no time.
_MOST_TAIL_BYTES = 128 << 20


class OutputReader:
    """One output file. `until` is the size at the beginning, where a log that is not followed ends."""

    def __init__(self, run: RunDir, stream: str, query: LogQuery) -> None:
        self.stream = stream
        self._folder = run.path
        self._query = query
        self._file = -1
        self._offset = 0
        self._until = 0
        self._notice = b""

    def read(self, most: int) -> OutputPiece | None:
        """Blocks for as long as the disk takes; None when there are no more bytes now."""
        if self._file < 0 and not self._open():
            return None
        until = os.fstat(self._file).st_size if self._query.follow else self._until
        if not self._notice:
            self._skip_hole(until)
        if self._notice:
            data, self._notice = self._notice[:most], self._notice[most:]
        else:
            data = _before_hole(self._file, self._offset, min(most, until - self._offset))
        if not data:
            return None
        piece = OutputPiece(self.stream, self._offset, data)
        self._offset += len(data)
        return piece

    def close(self) -> None:
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    def _skip_hole(self, until: int) -> None:
        """The hole counts as read, but for its last bytes: there a notice stands that names its size."""
        if self._offset >= until:
            return
        kept_at = kept_from(self._file, self._offset, until)
        left_out = kept_at - self._offset
        if left_out > 0:
            notice = f"\n... {left_out} bytes left out ...\n".encode()
            self._notice = notice[-left_out:]
            self._offset = kept_at - len(self._notice)

    def _open(self) -> bool:
        file = task_files.open_plain(self._folder, self.stream)
        if file is None:
            if task_files.holds(self._folder, self.stream):
                raise NotFound(f"{self.stream} is no plain file any more")
            return False
        self._file = file
        self._until = os.fstat(file).st_size
        start = self._query.start_of(self.stream)
        if start is not None:
            self._offset = start
        elif self._query.tail_lines:
            self._offset = tail_start(file, self._until, self._query.tail_lines)
        return True


def kept_from(file: int, offset: int, until: int) -> int:
    """The offset of the first byte at or after this offset that was not left out; `until` when there is none before."""
    data_at = _seek(file, offset, os.SEEK_DATA, otherwise=until)
    if data_at == offset or data_at >= until:
        return min(data_at, until)
    # A block that begins in the hole is filled with zeros up to the first byte.
    block = os.pread(file, min(_BLOCK, until - data_at), data_at)
    return data_at + len(block) - len(block.lstrip(b"\0"))


def _before_hole(file: int, offset: int, most: int) -> bytes:
    """The bytes from the offset on, up to the next hole: a block that ends in it is filled with zeros."""
    if most <= 0:
        return b""
    hole = _seek(file, offset, os.SEEK_HOLE, otherwise=offset + most)
    data = os.pread(file, min(most, hole - offset) if hole > offset else most, offset)
    if offset + len(data) == hole and hole < os.fstat(file).st_size:
        return data.rstrip(b"\0") or data
    return data


def _seek(file: int, offset: int, how: int, *, otherwise: int) -> int:
    """The next data or hole; `otherwise` where there is none, as on a file system without holes."""
    try:
        return os.lseek(file, offset, how)
    except OSError as error:
        return otherwise if error.errno == errno.ENXIO or how == os.SEEK_HOLE else offset


class RunLog:
    """Both outputs of an attempt, or a single one."""

    def __init__(self, run: RunDir, query: LogQuery) -> None:
        self._run = run
        self._follow = query.follow
        self._outputs = [OutputReader(run, stream, query) for stream in query.streams]
        self._watch = _watch(run) if query.follow else None
        # A read that was cancelled may still be under way in its thread when the files are closed.
        self._using = threading.Lock()
        self._closed = False

    async def read(self, most: int) -> OutputPiece | None:
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

    def _next(self, most: int) -> tuple[bool, OutputPiece | None]:
        """Whether the output was complete before the read, and the next piece."""
        with self._using:
            if self._closed:
                return True, None
            over = not self._follow or self._run.end() is not None or not task_files.holds(self._run.path)
            for output in self._outputs:
                piece = output.read(most)
                if piece is None:
                    continue
                if self._follow and piece.data.endswith(b"\n"):
                    # An output that never pauses must not silence the other.
                    self._outputs.reverse()
                return False, piece
            return over, None


def _watch(run: RunDir) -> FolderWatch:
    """A watch of the folder itself: a link or a mount in its place would block the loop."""
    try:
        folder = task_files.open_folder(run.path)
    except OSError as error:
        if task_files.is_exhausted(error.errno):
            raise
        raise NotFound("nothing is kept of it any more: its folder is gone") from None
    try:
        return FolderWatch(Path(f"/proc/self/fd/{folder}"))
    finally:
        os.close(folder)


def tail_start(file: int, size: int, lines: int) -> int:
    """The offset where the last lines begin; an unfinished line counts."""
    left = lines + 1
    end = size
    least = max(0, size - _MOST_TAIL_BYTES)
    if size and os.pread(file, 1, size - 1) != b"\n":
        left -= 1
    while end > least:
        begin = max(least, end - _BLOCK)
        block = os.pread(file, end - begin, begin)
        count = block.count(b"\n")
        if count < left:
            left -= count
            end = begin
            continue
        at = len(block)
        for _ in range(left):
            at = block.rindex(b"\n", 0, at)
        return begin + at + 1
    return least
