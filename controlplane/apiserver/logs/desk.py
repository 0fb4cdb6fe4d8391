"""The logs that are read over the joblets' streams of this replica.

A tap is one log on its way from a joblet. The joblet sends no more than was granted, and more is granted as it is read:
so much waits here at most, however slow the reader.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable

from controlplane.apiserver.joblets.messages import AboutLog
from controlplane.apiserver.logs.peers import Peers
from controlplane.model.errors import Broken, ControlPlaneError, LimitExceeded, Refused, Unavailable
from controlplane.wire import errors
from controlplane.wire.v1 import logs_pb2

WINDOW_BYTES = 1 << 20
MOST_TAPS = 64
_SMALL_BYTES = 4096
# As if each took 64 bytes of the window at least.
_MOST_PIECES = WINDOW_BYTES // 64

Say = Callable[[AboutLog], None]


class Tap:
    def __init__(self, number: int, taps: Taps) -> None:
        self.number = number
        self._taps = taps
        self._pieces: deque[logs_pb2.LogPiece] = deque()
        self._allowed = WINDOW_BYTES
        self._read = 0
        self._news = asyncio.Event()
        self._over = False
        self._error: ControlPlaneError | None = None

    async def read(self) -> logs_pb2.LogPiece | None:
        """The next piece, None at the end. Unavailable when the stream ended before the log did."""
        while not self._pieces:
            if self._error is not None:
                raise self._error
            if self._over:
                return None
            self._news.clear()
            await self._news.wait()
        piece = self._pieces.popleft()
        self._read += len(piece.data)
        if self._read >= WINDOW_BYTES // 2 and not self._over:
            self._taps.grant(self.number, self._read)
            self._allowed, self._read = self._allowed + self._read, 0
        return piece

    def close(self) -> None:
        """Nobody reads on: the joblet need not, either."""
        if not self._over:
            self._over = True
            self._taps.close(self.number)

    def hear(self, chunk: logs_pb2.LogChunk) -> None:
        size = len(chunk.piece.data)
        if size > self._allowed or len(self._pieces) >= _MOST_PIECES:
            self._taps.close(self.number)
            self.end(Broken("the joblet sent more of a log than it was granted"))
        elif size:
            self._allowed -= size
            self._keep(chunk.piece)
            self._news.set()
        if chunk.end:
            self.end(errors.rebuild(chunk.code, chunk.message, "") if chunk.code else None)

    def _keep(self, piece: logs_pb2.LogPiece) -> None:
        """A copy: a piece of a message keeps the whole batch that it came in. Small ones in a row become one."""
        last = self._pieces[-1] if self._pieces else None
        follows = last is not None and (last.stream, last.offset + len(last.data)) == (piece.stream, piece.offset)
        if last is not None and follows and len(last.data) + len(piece.data) <= _SMALL_BYTES:
            last.data += piece.data
            return
        copied = logs_pb2.LogPiece()
        copied.CopyFrom(piece)
        self._pieces.append(copied)

    def end(self, error: ControlPlaneError | None) -> None:
        if not self._over:
            self._over, self._error = True, error
        self._news.set()


class Taps:
    """Of one joblet's stream. `understood` is whether the joblet knows about logs at all."""

    def __init__(self, target: str, understood: bool, say: Say) -> None:
        self._target = target
        self._understood = understood
        self._say = say
        self._taps: dict[int, Tap] = {}
        self._number = 0
        self._ended = False

    def open(self, query: logs_pb2.LogQuery) -> Tap:
        if self._ended:
            raise Unavailable(f"the joblet of target {self._target} left this replica")
        if not self._understood:
            raise Refused(f"the joblet of target {self._target} is of a version that cannot read logs")
        if len(self._taps) >= MOST_TAPS:
            raise LimitExceeded(f"{MOST_TAPS} logs of target {self._target} are being read, the most at a time")
        self._number += 1
        tap = self._taps[self._number] = Tap(self._number, self)
        opened = logs_pb2.OpenLog(log=self._number, query=query, credit=WINDOW_BYTES)
        self._say(AboutLog("open_log", opened))
        return tap

    def hear(self, chunk: logs_pb2.LogChunk) -> None:
        """What comes of a log that was closed meanwhile is dropped."""
        tap = self._taps.get(chunk.log)
        if tap is None:
            return
        if chunk.end:
            del self._taps[chunk.log]
        tap.hear(chunk)

    def grant(self, number: int, credit: int) -> None:
        self._say(AboutLog("grant_log", logs_pb2.GrantLog(log=number, credit=credit)))

    def close(self, number: int) -> None:
        if self._taps.pop(number, None) is not None:
            self._say(AboutLog("close_log", logs_pb2.CloseLog(log=number)))

    def end(self) -> None:
        """The stream is over."""
        self._ended = True
        taps, self._taps = self._taps, {}
        for tap in taps.values():
            tap.end(Unavailable(f"the joblet of target {self._target} left this replica"))


class Desk:
    """Where logs are asked for: at the streams here, or at other replicas."""

    def __init__(self) -> None:
        self.peers = Peers()
        self._find: Callable[[str], Taps | None] = lambda target: None

    def attach(self, find: Callable[[str], Taps | None]) -> None:
        """`find` gives the taps of the stream that serves a target here."""
        self._find = find

    def open_here(self, target: str, query: logs_pb2.LogQuery) -> Tap:
        """Unavailable when its joblet is not connected to this replica."""
        taps = self._find(target)
        if taps is None:
            raise Unavailable(f"the joblet of target {target} is not connected to this replica")
        return taps.open(query)

    def has(self, target: str) -> bool:
        return self._find(target) is not None

    async def close(self) -> None:
        await self.peers.close()
