"""Pages of a list: at most 1,000 items and about 2 MiB each, after a bounded search.

A token names the key behind which the next page begins. A page may be short, even empty, while its token tells of more.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
from collections.abc import Callable, Iterable
from typing import TypeVar

from controlplane.model.errors import Invalid

E = TypeVar("E")

MAX_ITEMS = 1000
MAX_BYTES = 2 << 20
MAX_SEARCHED = 20_000
# After so many keys other work of the loop has its turn.
TURN = 1000
_FRONT = "v1:"


def limit_of(limit: int) -> int:
    if not 0 <= limit <= MAX_ITEMS:
        raise Invalid("limit", f"must be between 1 and {MAX_ITEMS}, or 0 for {MAX_ITEMS}, not {limit}")
    return limit or MAX_ITEMS


def token_for(key: str) -> str:
    return base64.urlsafe_b64encode(f"{_FRONT}{key}".encode()).decode()


def key_in(token: str) -> str:
    """The key named by a token, '' for none."""
    if not token:
        return ""
    try:
        text = base64.b64decode(token, altchars=b"-_", validate=True).decode()
    except (binascii.Error, ValueError):
        text = ""
    if not text.startswith(_FRONT):
        raise Invalid("page_token", "is not one that this service gave out")
    return text.removeprefix(_FRONT)


async def page(
    keys: Iterable[str],
    show: Callable[[str], E | None],
    size_of: Callable[[E], int],
    limit: int,
    *,
    visible: Callable[[str], bool],
) -> tuple[list[E], str]:
    """The encoded items of the keys (None: left out), and the token behind the last item.

    A key that is not visible to the caller counts for nothing: no token names it or tells of it.
    """
    items: list[E] = []
    size = searched = 0
    last = ""
    for position, key in enumerate(keys, 1):
        if position % TURN == 0:
            await asyncio.sleep(0)
        if not visible(key):
            continue
        if len(items) == limit or size >= MAX_BYTES or searched == MAX_SEARCHED:
            return items, token_for(last)
        last = key
        searched += 1
        item = show(key)
        if item is not None:
            items.append(item)
            size += size_of(item)
    return items, ""
