"""BoundedSite: an HTTP listener with few, young and busy connections.

aiohttp waits for the first byte of a connection for ever, and accepts as many connections as there are descriptors.
Here a connection is closed after some seconds of silence, and after a bounded life. When there are too many, the
connection silent for longest makes room for the new one: a probe is answered, however many connections others hold
open. With TLS all of this begins before the handshake: a connection that never ends its handshake is one of the few.
"""

from __future__ import annotations

import asyncio
import ssl
from typing import Any, Final, cast

from aiohttp import web

MOST_CONNECTIONS: Final = 128
SILENCE_SECONDS: Final = 5.0
LIFE_SECONDS: Final = 60.0


class BoundedSite(web.BaseSite):
    def __init__(self, runner: web.AppRunner, host: str, port: int, tls: ssl.SSLContext | None = None) -> None:
        super().__init__(runner)
        self._address = (host, port)
        self._tls = tls
        # The connection silent for longest comes first.
        self._open: dict[_SiteConnection, None] = {}

    @property
    def name(self) -> str:
        scheme = "http" if self._tls is None else "https"
        return f"{scheme}://{self._address[0]}:{self._address[1]}"

    async def start(self) -> None:
        await super().start()
        host, port = self._address
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(self._accept, host, port, backlog=self._backlog, reuse_port=False)

    def _accept(self) -> asyncio.Protocol:
        handler = cast(asyncio.Protocol, self._runner.server())  # type: ignore[misc]
        return _SiteConnection(handler, self._open, self._tls)


class _SiteConnection(asyncio.Protocol):
    """One connection; the handler of aiohttp does the work."""

    def __init__(self, handler: Any, connections: dict[_SiteConnection, None], tls: ssl.SSLContext | None) -> None:
        self._handler = handler
        self._connections = connections
        self._tls = tls
        self._securing: asyncio.Task[None] | None = None
        self._served = False
        self._transport: asyncio.Transport | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._born = asyncio.get_running_loop().time()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        if len(self._connections) >= MOST_CONNECTIONS:
            next(iter(self._connections)).close()
        self._speak()
        if self._tls is None:
            self._serve()
        else:
            # The first bytes belong to the handshake, which begins with the next turn of the loop.
            self._transport.pause_reading()
            self._securing = asyncio.get_running_loop().create_task(self._secure(self._transport, self._tls))

    async def _secure(self, plain: asyncio.Transport, tls: ssl.SSLContext) -> None:
        """Ends the handshake, or the connection. This protocol receives what the client sends after the handshake."""
        loop = asyncio.get_running_loop()
        try:
            secured = await loop.start_tls(
                plain, self, tls, server_side=True, ssl_handshake_timeout=SILENCE_SECONDS, ssl_shutdown_timeout=1.0
            )
        except OSError:  # an SSLError and a TimeoutError are OSErrors: the client is no client of ours, or is gone
            secured = None
        # asyncio gives no transport for a connection that was lost in the middle of its handshake.
        if secured is None or plain.is_closing():
            self._forget()
            plain.abort()
            return
        self._transport = secured
        self._serve()

    def _serve(self) -> None:
        self._served = True
        self._handler.connection_made(self._transport)

    def data_received(self, data: bytes) -> None:
        self._speak()
        self._handler.data_received(data)

    def _speak(self) -> None:
        """Puts this connection behind all others, and gives it some seconds more."""
        self._connections.pop(self, None)
        self._connections[self] = None
        if self._timer is not None:
            self._timer.cancel()
        loop = asyncio.get_running_loop()
        until = min(loop.time() + SILENCE_SECONDS, self._born + LIFE_SECONDS)
        self._timer = loop.call_at(until, self.close)

    def close(self) -> None:
        self._forget()
        if self._transport is not None:
            self._transport.abort()

    def _forget(self) -> None:
        self._connections.pop(self, None)
        if self._timer is not None:
            self._timer.cancel()

    def connection_lost(self, error: Exception | None) -> None:
        self._forget()
        if self._served:
            self._handler.connection_lost(error)

    def eof_received(self) -> bool | None:
        return bool(self._handler.eof_received())

    def pause_writing(self) -> None:
        self._handler.pause_writing()

    def resume_writing(self) -> None:
        self._handler.resume_writing()
