"""Reading objects of any kind through the view of the kind: one object, a page of a list."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Generic, NamedTuple, Protocol, TypeVar

from controlplane.apiserver.authorisation import visible_owners
from controlplane.apiserver.call import Call
from controlplane.apiserver.fresh_reads import fresh
from controlplane.apiserver.queries import paging
from controlplane.apiserver.queries.views.object_view import Filter, ObjectView, shown, sound, veiled
from controlplane.cache.reflector import Cache
from controlplane.cache.snapshot import Snapshot

T = TypeVar("T")
T_contra = TypeVar("T_contra", contravariant=True)
E = TypeVar("E")


class PageRequest(NamedTuple):
    """`limit` 0 is the most; `token` comes from the page before."""

    limit: int
    token: str


@dataclass(frozen=True, slots=True)
class ObjectPage(Generic[E]):
    revision: int
    items: list[E]
    next_token: str


class Encoder(Protocol[T_contra, E]):
    """The encoding of a list's objects by a face: a page is bounded by the bytes of its encoded items."""

    def encoded(self, key: str, item: T_contra) -> E | None:
        """None for an object which the face cannot encode: the list goes on without the object."""
        ...

    def size(self, encoded: E) -> int: ...


async def get(cache: Cache, call: Call, view: ObjectView[T], name: str) -> T:
    snapshot, owners = await fresh(cache, call), visible_owners(call.subject)
    key = view.find(snapshot, name)
    seen = view.read(snapshot, key) if key is not None and shown(view, snapshot, key, owners) else None
    if seen is None:
        raise view.missing(name)
    return veiled(view, seen.item, owners)


async def listed(
    cache: Cache,
    call: Call,
    view: ObjectView[T],
    wanted: Filter,
    page: PageRequest,
    encoder: Encoder[T, E],
    *,
    show: Callable[[Snapshot, str], T | None] | None = None,
) -> ObjectPage[E]:
    """One page of a view. `show` may leave out objects, or add to the view's own reading.

    Objects that the caller may not see count for nothing: they are neither searched nor named by a page token.
    """
    limit, after = paging.limit_of(page.limit), paging.key_in(page.token)
    snapshot = await fresh(cache, call)
    owners = visible_owners(call.subject)
    wanted = replace(wanted, owners=owners)

    def encoded(key: str) -> E | None:
        if show is not None:
            item = show(snapshot, key)
        else:
            seen = sound(view, snapshot, key)
            item = seen.item if seen is not None else None
        return encoder.encoded(key, veiled(view, item, owners)) if item is not None else None

    items, token = await paging.page(
        view.keys(snapshot, wanted, after),
        encoded,
        encoder.size,
        limit,
        visible=lambda key: shown(view, snapshot, key, owners),
    )
    return ObjectPage(snapshot.revision, items, token)
