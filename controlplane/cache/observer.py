"""The observer: hears every change, and keeps the happenings that a person may ask about, for the event log.

Warm on every replica: the leader writes events, and a new leader goes on behind the last change told in an event. So
changes from a time without a leader, or that a dead leader had not written down, are told all the same. The list that a
replica starts with is no news.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence

import structlog

from controlplane.cache import happenings
from controlplane.cache.ledgers import Ledgers
from controlplane.cache.reflector import Delta
from controlplane.cache.snapshot import Snapshot
from controlplane.model.event import Happening, Record

log = structlog.get_logger(__name__)

_MOST_KEPT = 2000


class Observer:
    """Reacts to changes after the ledgers did: poison that the ledgers set aside is told here."""

    def __init__(self, ledgers: Ledgers) -> None:
        self._ledgers = ledgers
        self._kept: deque[Happening] = deque(maxlen=_MOST_KEPT)
        self._poison: set[str] = set()
        self._listed = False
        self._listeners: list[Record] = []
        ledgers.cache.subscribe(self._hear)

    def subscribe(self, listener: Record, after_revision: int) -> Callable[[], None]:
        """The listener gets the kept happenings of later changes, then each new happening. Returns how to stop."""
        for happening in self._kept:
            if happening.revision > after_revision:
                listener(happening)
        self._listeners.append(listener)
        return lambda: self._listeners.remove(listener)

    def _hear(self, deltas: Sequence[Delta], revision: int) -> None:
        if self._listed:
            for delta in deltas:
                if not happenings.is_routine(delta):
                    self._hear_one(delta)
        self._listed = True
        if self._ledgers.poisoned or self._poison:
            self._hear_of_poison(revision)

    def _hear_one(self, delta: Delta) -> None:
        """A change that fails to be told is skipped."""
        try:
            for happening in happenings.happenings_of(delta, self._look):
                self._tell(happening)
        except Exception:
            log.exception("a change cannot be told in an event", tree=delta.tree, parts=delta.parts)

    def _look(self) -> Snapshot:
        return self._ledgers.cache.snapshot

    def _hear_of_poison(self, revision: int) -> None:
        rules = self._ledgers.poison
        for key in sorted(rules.keys() ^ self._poison):
            poisoned = key in rules
            self._tell(happenings.poison(key, rules[key], revision) if poisoned else happenings.mended(key, revision))
        self._poison = set(rules)

    def _tell(self, happening: Happening) -> None:
        self._kept.append(happening)
        for listener in tuple(self._listeners):
            listener(happening)
