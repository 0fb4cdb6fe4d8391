"""LineLog: lines of many callers on the event loop, written to a file by one thread.

A bounded queue lies between the loop and the thread. The loop never touches the file, so a disk that hangs, or a pipe
without a reader, delays only callers of `put`, only while the queue is full, and only for `patience_seconds`.

No line is lost silently. Lines are kept while the file cannot be opened or written, and the thread tries again. When
the queue is full meanwhile, the oldest lines are dropped, so that no caller waits for a broken disk. Every lost line is
counted, the first line written afterwards tells their number (`about_lost`), and an error is logged once a minute.
"""

from __future__ import annotations

import asyncio
import threading
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Final

import structlog

from controlplane.aio.append_file import AppendFile
from controlplane.aio.clock import Clock

log = structlog.get_logger(__name__)

MOST_LINES: Final = 10_000
PATIENCE_SECONDS: Final = 5.0
CLOSE_SECONDS: Final = 2.0
# Most lines of a single write.
BATCH_LINES: Final = 500
_RETRY_SECONDS: Final = 1.0
_COMPLAINT_SECONDS: Final = 60.0


class LineLog:
    """Made and called on the event loop. The thread never holds up the end of the process."""

    def __init__(
        self,
        path: str,
        clock: Clock,
        *,
        about_lost: Callable[[int], bytes],
        most_lines: int = MOST_LINES,
        patience_seconds: float = PATIENCE_SECONDS,
    ) -> None:
        """`about_lost` makes the line about a number of lost lines, in the thread. `path` "-" is stdout."""
        self._path = path
        self._clock = clock
        self._about_lost = about_lost
        self._most_lines = most_lines
        self._patience_seconds = patience_seconds
        self._loop = asyncio.get_running_loop()
        self._ended = asyncio.Event()
        # `_changed` guards the fields up to the next empty line, and is never held during I/O.
        self._changed = threading.Condition()
        self._queue: deque[bytes] = deque()
        self._waiting: OrderedDict[asyncio.Future[None], bytes] = OrderedDict()
        self._untold = 0
        self._reopening = True
        self._closing = False

        self._file = AppendFile(path)
        self._renewal_due = False
        self._batch: deque[bytes] = deque()
        self._complained: float | None = None
        self._thread = threading.Thread(target=self._work, name="line-log", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def offer(self, line: bytes, *, most_lines: int) -> bool:
        """Whether the line was queued. The line is not queued when the queue has `most_lines` lines, or is closed."""
        with self._changed:
            if self._closing or len(self._queue) >= most_lines:
                return False
            self._enqueue(line)
            return True

    async def put(self, line: bytes) -> None:
        """Queues the line, in the order of the calls; waits for room while the queue is full.

        A line that found no room in time, or whose caller was cancelled before, is lost and counted.
        """
        with self._changed:
            if self._closing:
                self._untold += 1
                return
            if not self._waiting and len(self._queue) < self._most_lines:
                self._enqueue(line)
                return
            room: asyncio.Future[None] = self._loop.create_future()
            self._waiting[room] = line
        try:
            with suppress(TimeoutError):
                async with asyncio.timeout(self._patience_seconds):
                    await room
        finally:
            if room.cancelled():
                self._leave(room)

    def lose(self, count: int) -> None:
        """Counts lines that were not queued and never will be."""
        with self._changed:
            self._untold += count

    def reopen(self) -> None:
        """Lets the thread open the path anew before the next line, as after a rotation by rename.

        Until then lines go to the former file, and also for as long as the path cannot be opened.
        """
        with self._changed:
            self._reopening = True
            self._changed.notify()

    async def close(self, seconds: float = CLOSE_SECONDS, *, last: Iterable[bytes] = ()) -> None:
        """Writes the lines which are queued or wait for room, and the `last` lines. Later lines are lost.

        Returns after `seconds` even if the file hangs.
        """
        with self._changed:
            self._closing = True
            self._admit(most_lines=None)
            self._queue.extend(last)
            self._changed.notify()
        if self._thread.is_alive():
            with suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await self._ended.wait()
        with self._changed:
            unwritten = self._untold + len(self._queue) + len(self._batch)
        if unwritten:
            log.error("lines were not written", path=self._path, lines=unwritten)

    def _enqueue(self, line: bytes) -> None:
        self._queue.append(line)
        self._changed.notify()

    def _admit(self, most_lines: int | None) -> None:
        """Queues lines of waiting callers, first come first served, up to the bound."""
        while self._waiting and (most_lines is None or len(self._queue) < most_lines):
            room, line = self._waiting.popitem(last=False)
            if room.done():
                # The caller was cancelled, or ran out of patience, and has not run since.
                self._untold += 1
                continue
            room.set_result(None)
            self._enqueue(line)

    def _leave(self, room: asyncio.Future[None]) -> None:
        """The caller no longer waits, and its line was not queued."""
        with self._changed:
            if self._waiting.pop(room, None) is not None:
                self._untold += 1
        self._complain("the queue is full")

    def _room_was_made(self) -> None:
        with self._changed:
            self._admit(self._most_lines)

    def _work(self) -> None:
        try:
            while self._take():
                self._deliver()
            with suppress(OSError):
                # Tells of lines that were lost since the last batch.
                self._write()
        finally:
            self._file.close()
            self._tell_loop(self._ended.set)

    def _take(self) -> bool:
        """Waits for lines, a reopening or the end, and takes the next batch; False at the end."""
        with self._changed:
            self._changed.wait_for(lambda: self._queue or self._reopening or self._closing)
            self._renewal_due = self._renewal_due or self._reopening
            self._reopening = False
            while self._queue and len(self._batch) < BATCH_LINES:
                self._batch.append(self._queue.popleft())
            if self._waiting:
                self._tell_loop(self._room_was_made)
            return bool(self._batch) or not self._closing

    def _deliver(self) -> None:
        """Writes the batch, or drops the batch when room is needed and the file fails."""
        while True:
            try:
                self._write()
                return
            except OSError as error:
                self._complain(str(error))
            if not self._batch or not self._wait_for_retry():
                return

    def _write(self) -> None:
        if self._renewal_due:
            try:
                self._file.reopen()
                self._renewal_due = False
            except OSError as error:
                if not self._file.is_open:
                    raise
                self._complain(str(error))
        # Read without the lock: more lines may be lost meanwhile, and are told with the next batch.
        lost = self._untold
        if lost:
            self._file.append(deque([self._about_lost(lost)]))
            with self._changed:
                self._untold -= lost
        self._file.append(self._batch)

    def _wait_for_retry(self) -> bool:
        """Whether to try the same batch again. Otherwise the batch was dropped: others wait for room, or the end."""
        with self._changed:
            self._changed.wait_for(lambda: self._is_full() or self._reopening or self._closing, _RETRY_SECONDS)
            self._renewal_due = self._renewal_due or self._reopening
            self._reopening = False
            if not self._is_full() and not self._closing:
                return True
            self._untold += len(self._batch)
            self._batch.clear()
            return False

    def _is_full(self) -> bool:
        return len(self._queue) >= self._most_lines

    def _complain(self, reason: str) -> None:
        now = self._clock.monotonic()
        if self._complained is None or now - self._complained >= _COMPLAINT_SECONDS:
            self._complained = now
            log.error("lines cannot be written", path=self._path, reason=reason, lost=self._untold)

    def _tell_loop(self, callback: Callable[[], None]) -> None:
        # RuntimeError: the loop is closed, and nobody waits any more.
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(callback)
