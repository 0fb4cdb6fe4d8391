"""The credential that a joblet shows to replicas: awaited until there is one, and replaced while streams are open."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable

from controlplane.wire import transport


class ShownCredential:
    """`was_accepted`: a replica welcomed the joblet with it, or with one before. `denied` is set while the credential
    shown is refused."""

    def __init__(self, token: str | None) -> None:
        """None: there is no credential yet. An open plane takes the empty token."""
        self._metadata = transport.credentials(token or "")
        self._present = asyncio.Event()
        self._replaced = asyncio.Event()
        self._listeners: list[Callable[[float], None]] = []
        self.denied = asyncio.Event()
        self.was_accepted = False
        if token is not None:
            self._present.set()

    async def metadata(self) -> transport.Metadata:
        await self._present.wait()
        return self._metadata

    def show(self, token: str, former_seconds: float = 0.0) -> None:
        """Shows the token from now on; the former one stays good for so long."""
        self._metadata = transport.credentials(token)
        self._present.set()
        self.denied.clear()
        self._replaced.set()
        self._replaced = asyncio.Event()
        for listener in self._listeners:
            listener(former_seconds / 2)

    def when_renewed(self, listener: Callable[[float], None]) -> None:
        """`listener` is called after each replacement with the seconds in which to use the new credential."""
        self._listeners.append(listener)

    def deny(self, metadata: transport.Metadata) -> None:
        """A replica refused this credential."""
        if metadata == self._metadata:
            self.denied.set()

    async def replaced(self, metadata: transport.Metadata, *, within_seconds: float) -> None:
        """Waits until another credential than this is shown, at most so long."""
        if metadata == self._metadata:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(within_seconds):
                    await self._replaced.wait()
