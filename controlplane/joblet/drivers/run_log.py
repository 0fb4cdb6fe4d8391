"""The output of one attempt as the process driver keeps it: two files in its folder, read off the loop.

The files stay readable to whoever has begun to read them, also when the folder is removed meanwhile. A command may put
anything in their place: only plain files are read. What its shim left out, as it was too much or the disk was full,
is a hole in the file; a line in its place says how much it was, and ends where the hole ends.
"""

from __future__ import annotations

import asyncio
import errno
import os
import threading
from pathlib import Path

from controlplane.aio.folder_watch import FolderWatch
from controlplane.joblet import task_files
from controlplane.joblet.drivers.rundir import RunDir
from controlplane.joblet.log_source import LogQuery, Piece
from controlplane.model.errors import NotFound

_BLOCK = 64 << 10
# So far back the last lines are looked for: a command can make a file of any size in no time.
_MOST_TAIL_BYTES = 128 << 20


class Output:
    """One file. `until` is how much of it is wanted when it is not followed."""

    def __init__(self, run: RunDir, stream: str, query: LogQuery) -> None:
        self.stream = stream
        self._folder = run.path
        self._query = query
        self._file = -1
        self._offset = 0
        self._until = 0
        self._words = b""

    def read(self, most: int) -> Piece | None:
        """Blocks for as long as the disk takes; None when there is nothing more now."""
        if self._file < 0 and not self._open():
            return None
        until = os.fstat(self._file).st_size if self._query.follow else self._until
        if not self._words:
            self._skip_hole(until)
        if self._words:
            data, self._words = self._words[:most], self._words[most:]
        else:
            data = _before_hole(self._file, self._offset, min(most, until - self._offset))
        if not data:
            return None
        piece = Piece(self.stream, self._offset, data)
        self._offset += len(data)
        return piece

    def close(self) -> None:
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    def _skip_hole(self, until: int) -> None:
        """What was left out counts as read, but for the words that tell of it: those stand in its last bytes."""
        if self._offset >= until:
            return
        kept_at = kept_from(self._file, self._offset, until)
        left_out = kept_at - self._offset
        if left_out > 0:
            words = f"\n... {left_out} bytes left out ...\n".encode()
            self._words = words[-left_out:]
            self._offset = kept_at - len(self._words)

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
    """Where the first byte at or behind the offset is that was not left out; `until` when there is none before it."""
    place = _seek(file, offset, os.SEEK_DATA, otherwise=until)
    if place == offset or place >= until:
        return min(place, until)
    # A block that begins in the hole is filled with zeros up to the first byte.
    block = os.pread(file, min(_BLOCK, until - place), place)
    return place + len(block) - len(block.lstrip(b"\0"))


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
    """`otherwise` where there is no more of it; a file system that knows no holes has none."""
    try:
        return os.lseek(file, offset, how)
    except OSError as error:
        return otherwise if error.errno == errno.ENXIO or how == os.SEEK_HOLE else offset


class RunLog:
    """Both outputs of one attempt, or one of them."""

    def __init__(self, run: RunDir, query: LogQuery) -> None:
        self._run = run
        self._follow = query.follow
        self._outputs = [Output(run, stream, query) for stream in query.streams]
        self._watch = _watch(run) if query.follow else None
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
            over = not self._follow or self._run.end() is not None or not task_files.holds(self._run.path)
            for output in self._outputs:
                piece = output.read(most)
                if piece is None:
                    continue
                if self._follow and piece.data.endswith(b"\n"):
                    # One that writes without end must not silence the other.
                    self._outputs.reverse()
                return False, piece
            return over, None


def _watch(run: RunDir) -> FolderWatch:
    """Of the folder itself: a link or a mount in its place would keep the loop waiting."""
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
    """Where the last lines begin; a line that is not finished counts as one."""
    left = lines + 1
    end = size
    least = max(0, size - _MOST_TAIL_BYTES)
    if size and os.pread(file, 1, size - 1) != b"\n":
        left -= 1
    while end > least:
        begin = max(least, end - _BLOCK)
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
    return least
