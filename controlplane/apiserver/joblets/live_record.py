"""LiveRecord: the only writer of `inventory/<target>/live` for a session under way, and the changes of the record.

Heartbeats of the joblet carry the amount of old work still dying, the capacity of the target, and stats. Changes during
a write are stored together by the next write. Every write compares the session's lease and the revision of its base, so
the record of another session is never written, and no other change is undone.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

import structlog
from msgspec.structs import replace

from controlplane.apiserver.api_ports import Reads, Writes
from controlplane.apiserver.joblets.session import Session, sound_capacity
from controlplane.model.errors import ControlPlaneError, Invalid
from controlplane.model.quantity import whole
from controlplane.model.target import Live
from controlplane.store import codec, keys, transaction
from controlplane.store.transaction import Item, Value

log = structlog.get_logger(__name__)

_TRIES = 5
_MAX_STATS = 64
_MAX_NAME = 64

LiveChange = Callable[[Live], Live]


class LiveRecord:
    def __init__(self, reads: Reads, writes: Writes, session: Session) -> None:
        self._reads = reads
        self._writes = writes
        self._session = session
        self._live, self._revision, self._raw = session.live, session.revision, session.raw
        # Changes to be stored: the newest of each kind.
        self._waiting: dict[str, LiveChange] = {}
        self._writing = False

    def update(self, kind: str, change: LiveChange) -> bool:
        """Notes the change. True when the caller has to run `store`: the record changes, and no write is under way."""
        live = self._newest()
        if not self._writing and change(live) == live:
            return False
        self._waiting[kind] = change
        if self._writing:
            return False
        # From now on, not from the beginning of the write: a change until then would begin a second write.
        self._writing = True
        return True

    async def store(self) -> None:
        """Runs once for each True of `update`. A change which could not be stored is left to later heartbeats."""
        try:
            while self._waiting:
                changes, self._waiting = list(self._waiting.values()), {}
                await self._write(changes)
        except ControlPlaneError as error:
            log.info("a live record could not be stored", target=self._session.target, error=str(error))
        finally:
            self._writing = False

    async def _write(self, changes: list[LiveChange]) -> None:
        key = keys.live(self._session.target)
        for _ in range(_TRIES):
            live = changed = self._newest()
            for change in changes:
                changed = change(changed)
            if changed == live:
                return
            raw = codec.rewrite(self._raw, changed)
            compares = (self._session.holds, transaction.mod_is(key, self._revision))
            put = transaction.put(key, raw, lease=self._session.lease)
            outcome = await self._writes.writer.write(Item(compares, (put,), (self._session.look,)))
            if outcome.succeeded:
                self._live, self._revision, self._raw = changed, outcome.revision, raw
                return
            stored = outcome.found[0]
            if stored is None or stored.lease != self._session.lease:
                # The session is over, and so is its record.
                return
            self._take(stored)
        log.info("a live record keeps being changed", target=self._session.target)

    def _newest(self) -> Live:
        """The record as the cache or the last write here shows it, by the newer revision."""
        entry = self._reads.cache.snapshot.live_entry(self._session.target)
        if entry is not None and entry.revision > self._revision and entry.stored.lease == self._session.lease:
            live = entry.readable()
            if live is not None:
                self._live, self._revision, self._raw = live, entry.revision, entry.stored.value
        return self._live

    def _take(self, stored: Value) -> None:
        self._live, self._revision, self._raw = codec.read(stored, Live), stored.mod_revision, stored.value


def leftovers_change(count: int) -> LiveChange:
    """Old work of the target still dying: the target gets no new work before the count is zero."""
    return lambda live: replace(live, leftovers=count)


def capacity_change(capacity: Mapping[str, float], target: str) -> LiveChange | None:
    """Another capacity of the target under way; None for an invalid capacity."""
    try:
        sound = sound_capacity(capacity)
    except Invalid as error:
        log.warning("a joblet reports an invalid capacity", target=target, error=str(error))
        return None
    return lambda live: replace(live, capacity=sound)


def stats_change(stats: Mapping[str, float], now: str) -> LiveChange | None:
    """The target's stats with the time of their report; None without stats, or with too many."""
    if not stats or len(stats) > _MAX_STATS:
        return None
    sound = {name: whole(value) for name, value in stats.items() if 0 < len(name) <= _MAX_NAME and math.isfinite(value)}
    return lambda live: live if live.stats == sound else replace(live, stats=sound, reported=now)
