"""Who hears of the changes of a cache: some of every change, most of a few trees only.

A change calls only those who want its tree, so that a thousand watches of rules cost nothing when a task is placed.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection, Sequence
from typing import Generic, Protocol, TypeVar


class InTree(Protocol):
    """A change, as far as this module looks at it."""

    @property
    def tree(self) -> str: ...


D = TypeVar("D", bound=InTree)


class Audience(Generic[D]):
    """Listeners get what concerns them of one batch of changes in one call, in the order of the changes."""

    def __init__(self) -> None:
        self._numbers = itertools.count()
        self._listeners: dict[int, Callable[[Sequence[D], int], None]] = {}
        self._of_all: dict[int, None] = {}
        self._of_tree: dict[str, dict[int, None]] = {}

    def add(self, listener: Callable[[Sequence[D], int], None], trees: Collection[str] | None) -> Callable[[], None]:
        """From the next batch on; without trees it hears of everything. Returns how to stop it."""
        number = next(self._numbers)
        self._listeners[number] = listener
        places = [self._of_all] if trees is None else [self._of_tree.setdefault(tree, {}) for tree in trees]
        for place in places:
            place[number] = None

        def stop() -> None:
            self._listeners.pop(number, None)
            for place in places:
                place.pop(number, None)

        return stop

    def concerned(self, deltas: Sequence[D]) -> list[tuple[Callable[[Sequence[D], int], None], Sequence[D]]]:
        """Each listener with its part of the changes; who hears of everything comes first."""
        calls = [(self._listeners[number], deltas) for number in self._of_all]
        parts: dict[int, list[D]] = {}
        for delta in deltas:
            for number in self._of_tree.get(delta.tree, ()):
                parts.setdefault(number, []).append(delta)
        calls.extend((self._listeners[number], part) for number, part in parts.items())
        return calls
