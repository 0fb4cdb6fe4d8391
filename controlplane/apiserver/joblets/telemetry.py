"""What a session's joblet says of itself, and how often it should: stats into its live key, intervals out to it.

The live key is written only when stats come, which is at the reporting interval, and only when they differ from what is
stored. Every write compares the session's lease and the revision that it changes, so that it never undoes another's; a
refused one is left to the next report.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import msgspec
import structlog

from controlplane.aio.clock import Clock
from controlplane.apiserver.dependencies import ApiDependencies
from controlplane.apiserver.joblets.session import Session
from controlplane.cache.settings import settings_of
from controlplane.model import pace, silence, times
from controlplane.model.errors import ControlPlaneError
from controlplane.model.quantity import whole
from controlplane.model.target import Live, TargetStatus
from controlplane.store import codec, keys, transaction
from controlplane.store.transaction import Item

log = structlog.get_logger(__name__)

_MAX_STATS = 64
_MAX_NAME = 64
# Sessions that move to another lease, a second and replica.
_MOVES_A_SECOND = 20.0


class Moves:
    """How many sessions of this replica may move to another lease: each costs a few writes."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._next = 0.0

    def take(self) -> bool:
        now = self._clock.monotonic()
        if now < self._next:
            return False
        self._next = now + 1 / _MOVES_A_SECOND
        return True


class Telemetry:
    def __init__(self, deps: ApiDependencies, session: Session) -> None:
        self._deps = deps
        self._session = session
        self._live, self._revision = session.live, session.revision
        self._raw = b""
        self._writing = False

    def intervals(self) -> tuple[float, float]:
        """(seconds between heartbeats, seconds between stats) from now on."""
        snapshot = self._deps.cache.snapshot
        settings, targets = settings_of(snapshot), snapshot.count("config/targets")
        name = self._session.target
        entry = snapshot.get("status/targets", name)
        status = entry.sound(TargetStatus) if entry is not None else None
        paced = pace.pace(settings, targets).heartbeat_seconds
        heartbeat = silence.beat_seconds(paced, float(self._session.live.lease_seconds))
        busy = snapshot.count("desired", name) > 0
        return heartbeat, pace.stats_seconds(settings, targets, busy=busy, phase=status.phase if status else "")

    def outgrown(self) -> bool:
        """Whether the session should have another lease by now."""
        snapshot = self._deps.cache.snapshot
        wanted = pace.pace(settings_of(snapshot), snapshot.count("config/targets"))
        return pace.outgrown(float(self._session.live.lease_seconds), wanted)

    def hear(self, stats: Mapping[str, float]) -> dict[str, float] | None:
        """The stats to store, which the caller then does; None when there are none, too many, or none that are new."""
        if not stats or len(stats) > _MAX_STATS or self._writing:
            return None
        sound = {
            name: whole(value) for name, value in stats.items() if 0 < len(name) <= _MAX_NAME and math.isfinite(value)
        }
        if sound == self._newest().stats:
            return None
        # From now on, not from when the write begins: what is heard until then would begin one more.
        self._writing = True
        return sound

    async def store(self, stats: dict[str, float]) -> None:
        """Once for each time that `hear` returned some."""
        try:
            live = self._newest()
            now = msgspec.structs.replace(live, stats=stats, reported=times.show(self._deps.clock.wall()))
            key = keys.live(self._session.target)
            outcome = await self._deps.writer.write(
                Item(
                    (self._session.holds, transaction.mod_is(key, self._revision)),
                    (transaction.put(key, codec.rewrite(self._raw, now), lease=self._session.lease),),
                )
            )
            if outcome.succeeded:
                self._live, self._revision = now, outcome.revision
        except ControlPlaneError as error:
            log.debug("stats were not stored", target=self._session.target, error=str(error))
        finally:
            self._writing = False

    def _newest(self) -> Live:
        """The live record as the cache or the last write here shows it, whichever is newer."""
        entry = self._deps.cache.snapshot.get("inventory", self._session.target, keys.LIVE)
        if entry is not None and entry.revision > self._revision and entry.stored.lease == self._session.lease:
            live = entry.sound(Live)
            if live is not None:
                self._live, self._revision, self._raw = live, entry.revision, entry.stored.value
        return self._live
