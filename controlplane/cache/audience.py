"""The listeners of a cache: a few hear of every change, most of a few trees only.

A change calls only the listeners of its tree, so that a thousand watches of rules cost no time when a task is placed.
Stages order the calls: state derived from the cache (ledgers) is up to date before any listener reacts to a change.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection, Sequence
from enum import IntEnum
from typing import Generic, Protocol, TypeVar


class ListenerStage(IntEnum):
    """When a listener is called: DERIVE for state that other listeners read, REACT for all other listeners."""

    DERIVE = 0
    REACT = 1


class InTree(Protocol):
    """A change, as far as this module needs to know."""

    @property
    def tree(self) -> str: ...


D = TypeVar("D", bound=InTree)


class _Listeners:
    """The listeners of a stage, by number: of every change, and of each tree."""

    def __init__(self) -> None:
        self.of_all: dict[int, None] = {}
        self.of_tree: dict[str, dict[int, None]] = {}


class Audience(Generic[D]):
    """Each listener gets its part of a batch of changes in a single call, in the order of the changes."""

    def __init__(self) -> None:
        self._numbers = itertools.count()
        self._listeners: dict[int, Callable[[Sequence[D], int], None]] = {}
        self._stages = {stage: _Listeners() for stage in ListenerStage}

    def add(
        self,
        listener: Callable[[Sequence[D], int], None],
        trees: Collection[str] | None = None,
        stage: ListenerStage = ListenerStage.REACT,
    ) -> Callable[[], None]:
        """From the next batch on; without trees the listener hears of every change. Returns how to stop."""
        number = next(self._numbers)
        self._listeners[number] = listener
        there = self._stages[stage]
        places = [there.of_all] if trees is None else [there.of_tree.setdefault(tree, {}) for tree in trees]
        for place in places:
            place[number] = None

        def stop() -> None:
            self._listeners.pop(number, None)
            for place in places:
                place.pop(number, None)

        return stop

    def concerned(self, deltas: Sequence[D]) -> list[tuple[Callable[[Sequence[D], int], None], Sequence[D]]]:
        """Each listener with its part of the changes: stage by stage, listeners of every change first in each."""
        calls: list[tuple[Callable[[Sequence[D], int], None], Sequence[D]]] = []
        for there in self._stages.values():
            calls.extend((self._listeners[number], deltas) for number in there.of_all)
            if there.of_tree:
                parts: dict[int, list[D]] = {}
                for delta in deltas:
                    for number in there.of_tree.get(delta.tree, ()):
                        parts.setdefault(number, []).append(delta)
                calls.extend((self._listeners[number], part) for number, part in parts.items())
        return calls
