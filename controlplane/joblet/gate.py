"""Whether a driver can do its work right now. While the gate is shut, the joblet does not speak for its target.

So a target whose cluster stays away loses its session, and is given up after its grace time like any other target that
fell silent. A gate opens again when the driver sees its work again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable


class Gate:
    def __init__(self, *, is_open: bool = True) -> None:
        self._open = asyncio.Event()
        self._when_shut: Callable[[], None] = lambda: None
        if is_open:
            self._open.set()

    @property
    def is_open(self) -> bool:
        return self._open.is_set()

    def attach(self, when_shut: Callable[[], None]) -> None:
        """`when_shut` is called when the gate shuts."""
        self._when_shut = when_shut

    def open(self) -> None:
        self._open.set()

    def shut(self) -> None:
        if self.is_open:
            self._open.clear()
            self._when_shut()

    async def opened(self) -> None:
        await self._open.wait()
