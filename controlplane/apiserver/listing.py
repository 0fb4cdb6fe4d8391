"""Lists: one page of a view, as new as the client asks for."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from controlplane.apiserver import paging
from controlplane.apiserver.guard import Context
from controlplane.apiserver.reading import fresh
from controlplane.apiserver.views.view import Filter, View, sound
from controlplane.cache.reflector import Cache
from controlplane.cache.snapshot import Snapshot

Show = Callable[[Snapshot, str], Any | None]


def items_of(view: View) -> Show:
    def show(snapshot: Snapshot, key: str) -> Any | None:
        found = sound(view, snapshot, key)
        return None if found is None else found[0]

    return show


async def listed(
    cache: Cache, view: View, request: Any, context: Context, *, show: Show | None = None, wanted: Filter | None = None
) -> Any:
    """The fields of a list's answer: revision, items, next_page_token."""
    limit, after = paging.limit_of(request.limit), paging.key_in(request.page_token)
    snapshot = await fresh(cache, request.min_revision, context)
    wanted = wanted or Filter(order=request.order, target=request.target, phase=request.phase)
    item = show or items_of(view)
    items, token = paging.page(view.keys(snapshot, wanted, after), lambda key: item(snapshot, key), limit)
    return {"revision": snapshot.revision, "items": items, "next_page_token": token}
