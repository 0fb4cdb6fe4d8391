"""Call: the circumstances of one request, for commands and queries. A Call knows no transport.

The edge builds a Call for every request. A handler is `async def name(call: Call, request) -> answer`; a handler of a
watch is an async generator.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable

import msgspec

from controlplane.model.access import ANYONE, Subject

Metadata = Iterable[tuple[str, str | bytes]]


class Call(msgspec.Struct, frozen=True):
    """`min_revision`: an answer contains at least this revision. `deadline`: time of the event loop, None for none.

    `metadata` gives the headers of the request; they are decoded only for a handler which asks.
    """

    subject: Subject = ANYONE
    min_revision: int = 0
    deadline: float | None = None
    peer: str = ""
    metadata: Callable[[], Metadata | None] = lambda: None

    def seconds_left(self) -> float | None:
        return None if self.deadline is None else max(0.0, self.deadline - asyncio.get_running_loop().time())

    def has_header(self, name: str) -> bool:
        return any(key == name for key, _ in self.metadata() or ())
