"""Compaction: history older than the setting `history` goes, unless etcd compacts by itself.

etcd does not tell whether it compacts, but compactions can be seen: when the oldest revision moves without this leader,
another party compacts, and the leader leaves compaction alone for as long. The leader watches for a whole `history`
first. When more than half of etcd's quota is in use, only a sixth of `history` is kept, whoever compacts, and a warning
is logged.

A compaction is no transaction and cannot carry a fence. No fence is needed: a compaction only forgets revisions before
a moment that every leader computes alike, from the records of terms and from earlier looks, so that the compaction of a
deposed leader, or two at once, forget no revision that the true leader would keep. Compacting a compacted revision is
no error.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from typing import NamedTuple

import structlog

from controlplane.aio.clock import Clock
from controlplane.cache.effective_settings import settings_of
from controlplane.cache.ledgers import Ledgers, Touched
from controlplane.cache.snapshot import Snapshot
from controlplane.controller_manager.runner import Again
from controlplane.model import times
from controlplane.model.errors import Compacted, Invalid
from controlplane.store import keys, maintenance
from controlplane.store.kv import Store
from controlplane.store.space_watch import SpaceWatch

log = structlog.get_logger(__name__)

KEY = "history"
LOOK_SECONDS = 60.0
_SHORTER = 6
_HALF = 0.5
# A little more than a whole history, the longest pause between compactions of etcd itself.
_PATIENCE = 1.1
_MOST_LOOKS = 1500


class Mark(NamedTuple):
    """etcd was at this revision at this time."""

    time: datetime
    revision: int


class Seen(NamedTuple):
    """Compactions as this leader saw them: since when it watches, and the last foreign compaction (monotonic)."""

    since: float
    foreign: float | None


def plan(marks: Iterable[Mark], now: datetime, *, history: float, crowded: bool, oldest: int) -> int:
    """The revision to compact to; 0 when there is none."""
    keep = history / _SHORTER if crowded else history
    moment = now - timedelta(seconds=keep)
    revision = max((mark.revision for mark in marks if mark.time <= moment), default=0)
    return revision if revision > oldest else 0


def is_ours(seen: Seen, now: float, history: float) -> bool:
    """Whether the leader has to compact: it watched long enough, and saw no foreign compaction."""
    patience = history * _PATIENCE
    return now - (seen.foreign if seen.foreign is not None else seen.since) > patience


class Compaction:
    name = "compaction"
    kind = "Controller"

    def __init__(self, ledgers: Ledgers, store: Store, space: SpaceWatch, clock: Clock) -> None:
        self._ledgers = ledgers
        self._store = store
        self._space = space
        self._clock = clock
        self._looks: deque[Mark] = deque(maxlen=_MOST_LOOKS)
        self._seen = Seen(clock.monotonic(), None)
        self._oldest = 0
        self._own = 0
        self._told = False

    def every_key(self) -> Iterable[str]:
        return [KEY]

    def keys_affected_by(self, _touched: Touched) -> Iterable[str]:
        return []

    async def reconcile(self, _key: str) -> Again:
        snapshot = self._ledgers.cache.snapshot
        history = float(settings_of(snapshot).history)
        self._looks.append(Mark(self._clock.wall(), snapshot.revision))
        await self._look_back()
        crowded = self._crowded()
        if crowded or is_ours(self._seen, self._clock.monotonic(), history):
            marks = [*terms(snapshot), *self._looks]
            revision = plan(marks, self._clock.wall(), history=history, crowded=crowded, oldest=self._oldest)
            if revision:
                await self._compact(revision)
        return Again(after_seconds=min(LOOK_SECONDS, history / _SHORTER))

    async def _look_back(self) -> None:
        oldest = await maintenance.oldest(self._store)
        if self._oldest and oldest > max(self._oldest, self._own):
            self._seen = Seen(self._seen.since, self._clock.monotonic())
        self._oldest = oldest

    def _crowded(self) -> bool:
        space = self._space.now
        crowded = space is not None and space.used > _HALF
        if crowded and not self._told and space is not None:
            log.warning(
                "more than half of etcd's quota is in use: less history is kept", in_use=space.in_use, quota=space.quota
            )
        self._told = crowded
        return crowded

    async def _compact(self, revision: int) -> None:
        try:
            await self._store.compact(revision)
        except Compacted:
            return
        self._own = revision
        log.info("history is compacted", revision=revision)


def terms(snapshot: Snapshot) -> Sequence[Mark]:
    """Every term began at a known time and revision, so that a new leader knows the past, too."""
    marks: list[Mark] = []
    for entry in snapshot.all(keys.TERMS):
        term = entry.readable()
        if term is not None:
            try:
                marks.append(Mark(times.parse(term.since, "since"), entry.stored.create_revision))
            except Invalid:
                continue
    return marks
