"""Whether a driver can do its work right now. While it cannot, its joblet does not speak for the target.

So a target whose cluster stays away loses its session, and is given up after its grace time like any other that fell
silent. A gate opens again when the driver sees what is there.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable


class Gate:
    def __init__(self, *, is_open: bool = True) -> None:
        self._open = asyncio.Event()
        self._told: Callable[[], None] = lambda: None
        if is_open:
            self._open.set()

    @property
    def is_open(self) -> bool:
        return self._open.is_set()

    def attach(self, told: Callable[[], None]) -> None:
        """`told` is called when it shuts."""
        self._told = told

    def open(self) -> None:
        self._open.set()

    def shut(self) -> None:
        if self.is_open:
            self._open.clear()
            self._told()

    async def opened(self) -> None:
        await self._open.wait()
