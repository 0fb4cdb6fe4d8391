"""LogBroker: the logs read over the joblets' streams of this replica.

A LogSubscription is a log on its way from a joblet. The joblet sends no more bytes than granted, and a grant follows
the bytes read: so the waiting bytes are bounded, however slow the reader.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from controlplane.apiserver.logs.peer_logs import Peers
from controlplane.model.errors import Broken, ControlPlaneError, LimitExceeded, Refused, Unavailable
from controlplane.wire import status_codes, transport
from controlplane.wire.v1 import joblets_pb2, logs_pb2

WINDOW_BYTES = 1 << 20
MOST_TAPS = 64
_SMALL_BYTES = 4096
# Each piece counts as 64 bytes of the window at least.
_MOST_PIECES = WINDOW_BYTES // 64


@dataclass(frozen=True, slots=True)
class AboutLog:
    """open_log: a reader wants a log; grant_log: more bytes may come; close_log: no reader is left.

    A piece of a replica's batch (`joblets/replica_messages`).
    """

    kind: str
    said: logs_pb2.OpenLog | logs_pb2.GrantLog | logs_pb2.CloseLog

    def size(self) -> int:
        return self.said.ByteSize()

    def write(self, message: joblets_pb2.ReplicaMessage) -> None:
        getattr(message, self.kind).CopyFrom(self.said)


Say = Callable[[AboutLog], None]


class LogSubscription:
    def __init__(self, number: int, taps: StreamLogs) -> None:
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
        """No reader is left: the joblet need not send more."""
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
            self.end(status_codes.rebuild(chunk.code, chunk.message, "") if chunk.code else None)

    def _keep(self, piece: logs_pb2.LogPiece) -> None:
        """Keeps a copy: a piece of a message would keep its whole batch. Small pieces in a row become one piece."""
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


class StreamLogs:
    """The logs of one joblet's stream. `understood`: the version of the joblet can read logs."""

    def __init__(self, target: str, understood: bool, say: Say) -> None:
        self._target = target
        self._understood = understood
        self._say = say
        self._taps: dict[int, LogSubscription] = {}
        self._number = 0
        self._ended = False

    def open(self, query: logs_pb2.LogQuery) -> LogSubscription:
        if self._ended:
            raise Unavailable(f"the joblet of target {self._target} left this replica")
        if not self._understood:
            raise Refused(f"the joblet of target {self._target} is of a version that cannot read logs")
        if len(self._taps) >= MOST_TAPS:
            raise LimitExceeded(f"{MOST_TAPS} logs of target {self._target} are being read, the most at a time")
        self._number += 1
        tap = self._taps[self._number] = LogSubscription(self._number, self)
        opened = logs_pb2.OpenLog(log=self._number, query=query, credit=WINDOW_BYTES)
        self._say(AboutLog("open_log", opened))
        return tap

    def hear(self, chunk: logs_pb2.LogChunk) -> None:
        """Pieces of a log closed meanwhile are dropped."""
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


class LogBroker:
    """Opens logs: at the streams here, or at other replicas."""

    def __init__(
        self,
        credential: Callable[[str], str] = lambda address: "",
        opener: transport.ChannelOpener = transport.PLAIN,
    ) -> None:
        """`credential` gives this replica's credential for the replica at an address."""
        self.peers = Peers(credential, opener)
        self._find: Callable[[str], StreamLogs | None] = lambda target: None

    def attach(self, find: Callable[[str], StreamLogs | None]) -> None:
        """`find` gives the logs of the stream which serves a target here."""
        self._find = find

    def open_here(self, target: str, query: logs_pb2.LogQuery) -> LogSubscription:
        """Unavailable when the target's joblet is not connected to this replica."""
        taps = self._find(target)
        if taps is None:
            raise Unavailable(f"the joblet of target {target} is not connected to this replica")
        return taps.open(query)

    def has(self, target: str) -> bool:
        return self._find(target) is not None

    async def close(self) -> None:
        await self.peers.close()
