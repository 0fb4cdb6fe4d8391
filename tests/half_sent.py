"""A gRPC client that begins requests and never ends them: raw HTTP/2, since no gRPC library can do that.

It sends what the server's flow control lets it send, and counts it: so much of unfinished requests the server keeps.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

_PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
_DATA, _HEADERS, _RESET, _SETTINGS, _PING, _WINDOW = 0, 1, 3, 4, 6, 8
_ACK, _END_HEADERS = 1, 4
_INITIAL_WINDOW, _MAX_STREAMS = 4, 3
_FRAME_HEAD = 9
_FRAME_BYTES = 16 << 10
_DEFAULT_WINDOW = 65_535
_UNLIMITED = 1 << 31


def _literal(name: bytes, value: bytes) -> bytes:
    """A header without index and without compression; lengths stay below 127."""
    return b"\x00" + bytes([len(name)]) + name + bytes([len(value)]) + value


def _frame(kind: int, flags: int, stream: int, body: bytes = b"") -> bytes:
    return len(body).to_bytes(3, "big") + bytes([kind, flags]) + stream.to_bytes(4, "big") + body


class HalfSent:
    """One connection. `sent` is how many bytes of messages were taken on it, `refused` how many streams were reset or
    answered, `allowed` how many streams the server lets be open at a time."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._window = _DEFAULT_WINDOW
        self._initial = _DEFAULT_WINDOW
        self._windows: dict[int, int] = {}
        self._left: dict[int, memoryview] = {}
        self._next = 1
        self._settled = asyncio.Event()
        self.sent = 0
        self.refused = 0
        self.allowed = _UNLIMITED

    async def begin(self, method: str, message_bytes: int) -> None:
        """Begins a request of one message that announces so many bytes, of which the last never comes."""
        await self._settled.wait()
        stream, self._next = self._next, self._next + 2
        headers = {
            b":method": b"POST",
            b":scheme": b"http",
            b":path": method.encode(),
            b":authority": b"test",
            b"te": b"trailers",
            b"content-type": b"application/grpc",
        }
        block = b"".join(_literal(name, value) for name, value in headers.items())
        self._writer.write(_frame(_HEADERS, _END_HEADERS, stream, block))
        self._windows[stream] = self._initial
        self._left[stream] = memoryview(b"\x00" + message_bytes.to_bytes(4, "big") + bytes(message_bytes - 1))
        self._pour(stream)
        await self._writer.drain()

    def _pour(self, stream: int) -> None:
        while stream in self._left:
            left = self._left[stream]
            size = min(_FRAME_BYTES, self._window, self._windows[stream], len(left))
            if size <= 0:
                return
            self._writer.write(_frame(_DATA, 0, stream, bytes(left[:size])))
            self._left[stream] = left[size:]
            self._window -= size
            self._windows[stream] -= size
            self.sent += size

    async def listen(self) -> None:
        """Until the server closes the connection."""
        self._writer.write(_PREFACE + _frame(_SETTINGS, 0, 0))
        while True:
            try:
                head = await self._reader.readexactly(_FRAME_HEAD)
                body = await self._reader.readexactly(int.from_bytes(head[:3], "big"))
            except (asyncio.IncompleteReadError, ConnectionError):
                return
            self._hear(head[3], head[4], int.from_bytes(head[5:], "big") & 0x7FFFFFFF, body)
            await self._writer.drain()

    def _hear(self, kind: int, flags: int, stream: int, body: bytes) -> None:
        if kind == _SETTINGS and not flags & _ACK:
            for at in range(0, len(body), 6):
                self._set(int.from_bytes(body[at : at + 2], "big"), int.from_bytes(body[at + 2 : at + 6], "big"))
            self._writer.write(_frame(_SETTINGS, _ACK, 0))
            self._settled.set()
        elif kind == _PING and not flags & _ACK:
            self._writer.write(_frame(_PING, _ACK, 0, body))
        elif kind == _WINDOW:
            self._grant(stream, int.from_bytes(body, "big"))
        elif kind in (_RESET, _HEADERS) and self._left.pop(stream, None) is not None:
            self.refused += 1

    def _set(self, setting: int, value: int) -> None:
        if setting == _MAX_STREAMS:
            self.allowed = value
        elif setting == _INITIAL_WINDOW:
            for stream in self._windows:
                self._windows[stream] += value - self._initial
            self._initial = value
            for stream in tuple(self._left):
                self._pour(stream)

    def _grant(self, stream: int, more: int) -> None:
        if stream:
            self._windows[stream] = self._windows.get(stream, 0) + more
            self._pour(stream)
            return
        self._window += more
        for other in tuple(self._left):
            self._pour(other)


@asynccontextmanager
async def half_sent(address: str) -> AsyncIterator[HalfSent]:
    host, _, port = address.rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    client = HalfSent(reader, writer)
    listening = asyncio.create_task(client.listen())
    try:
        yield client
    finally:
        listening.cancel()
        await asyncio.gather(listening, return_exceptions=True)
        writer.close()
