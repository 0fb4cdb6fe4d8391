"""What a list and a watch need to know of one kind of object."""

from __future__ import annotations

import heapq
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Protocol

import structlog

from controlplane.cache.reflector import Delta
from controlplane.cache.snapshot import Snapshot
from controlplane.model.errors import Broken

log = structlog.get_logger(__name__)

_CHUNK = 1001
# What filling a message with a value raises that its field cannot hold.
CONVERSION = (ValueError, TypeError, OverflowError)


@dataclass(frozen=True, slots=True)
class Filter:
    name: str = ""
    order: str = ""
    target: str = ""
    phase: str = ""
    about_kind: str = ""
    about_name: str = ""


class View(Protocol):
    """`key` names one object within its kind; keys sort in the order in which objects are listed. `trees` are those
    whose changes can concern an object."""

    @property
    def trees(self) -> Collection[str]: ...

    def keys(self, snapshot: Snapshot, wanted: Filter, after: str) -> Iterator[str]:
        """The keys behind `after`, sorted."""
        ...

    def touched(self, delta: Delta, wanted: Filter) -> str | None:
        """The key of the object that the change concerns, None when it concerns none that is wanted."""
        ...

    def removes(self, delta: Delta) -> bool:
        """Whether the change took the object itself away, not only a part that is joined to it."""
        ...

    def read(self, snapshot: Snapshot, key: str) -> tuple[Any, int] | None:
        """The message and the newest revision of its parts; None when it is not there, Broken for poison."""
        ...

    def bare(self, key: str) -> Any:
        """A message that holds nothing but what identifies the object."""
        ...


def sound(view: View, snapshot: Snapshot, key: str) -> tuple[Any, int] | None:
    """Like `read`, but None for poison and for what no message can hold: readers of many step over it."""
    try:
        return view.read(snapshot, key)
    except Broken:
        return None
    except CONVERSION as error:
        log.error("an object cannot be shown, stepping over it", key=key, error=str(error))
        return None


def sorted_after(names: Iterable[str], after: str) -> Iterator[str]:
    """Sorted names behind `after`, without sorting more than is asked for."""
    left = [name for name in names if name > after]
    while left:
        if len(left) <= 4 * _CHUNK:
            yield from sorted(left)
            return
        chunk = heapq.nsmallest(_CHUNK, left)
        yield from chunk
        left = [name for name in left if name > chunk[-1]]
