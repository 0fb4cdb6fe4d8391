"""ObjectView: the knowledge of lists and watches about one kind of object."""

from __future__ import annotations

import heapq
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

from controlplane.cache.reflector import Delta
from controlplane.cache.snapshot import Entry, Snapshot
from controlplane.model.errors import Broken, NotFound

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)

_CHUNK = 1001


@dataclass(frozen=True, slots=True)
class Filter:
    name: str = ""
    order: str = ""
    target: str = ""
    phase: str = ""
    about_kind: str = ""
    about_name: str = ""
    # The owners whose objects the caller may see; None for all.
    owners: frozenset[str] | None = None


class SeenObject(NamedTuple, Generic[T_co]):
    """An object as users see it; `revision` is the newest revision of its parts."""

    item: T_co
    revision: int


class ObjectView(Protocol[T_co]):
    """`key` names an object within its kind; keys sort in the order of lists.

    `trees` are the trees with changes that can concern an object; the first one has the objects themselves.
    """

    @property
    def trees(self) -> Collection[str]: ...

    def find(self, snapshot: Snapshot, name: str) -> str | None:
        """The key of the object with the name that users give."""
        ...

    def keys(self, snapshot: Snapshot, wanted: Filter, after: str) -> Iterator[str]:
        """The keys behind `after`, sorted."""
        ...

    def touched(self, delta: Delta, wanted: Filter) -> str | None:
        """The key of the object concerned by the change, None for no wanted object."""
        ...

    def removes(self, delta: Delta) -> bool:
        """Whether the change removed the object itself, not only a part joined to the object."""
        ...

    def read(self, snapshot: Snapshot, key: str) -> SeenObject[T_co] | None:
        """None when there is no such object, Broken for poison."""
        ...

    def owner(self, snapshot: Snapshot, key: str) -> str | None:
        """The owner who alone may see the object, '' when the owner cannot be read; None for objects of the plane,
        which the edge has decided on.
        """
        ...

    def owner_of(self, snapshot: Snapshot, entry: Entry[Any]) -> str:
        """The owner of the object in an entry of the first tree, which may be gone by now."""
        ...

    def veiled(self, item: Any) -> Any:
        """The object for a caller who sees the work of some owners only: nothing in it counts the work of others."""
        ...

    def missing(self, name: str) -> NotFound:
        """The refusal for a name without an object."""
        ...


def shown(view: ObjectView[T], snapshot: Snapshot, key: str, owners: frozenset[str] | None) -> bool:
    """Whether a caller who may see the objects of these owners may see this object."""
    if owners is None:
        return True
    owner = view.owner(snapshot, key)
    return owner is None or owner in owners


def veiled(view: ObjectView[T], item: T, owners: frozenset[str] | None) -> T:
    if owners is None:
        return item
    less: T = view.veiled(item)
    return less


def sound(view: ObjectView[T], snapshot: Snapshot, key: str) -> SeenObject[T] | None:
    """Like `read`, but None for poison, which readers of many objects step over."""
    try:
        return view.read(snapshot, key)
    except Broken:
        return None


def sorted_after(names: Iterable[str], after: str) -> Iterator[str]:
    """Sorted names behind `after`, without sorting more names than are taken."""
    left = [name for name in names if name > after]
    while left:
        if len(left) <= 4 * _CHUNK:
            yield from sorted(left)
            return
        chunk = heapq.nsmallest(_CHUNK, left)
        yield from chunk
        left = [name for name in left if name > chunk[-1]]
