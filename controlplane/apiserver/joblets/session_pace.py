"""The pace of sessions by the number of targets: how often a joblet speaks, and when a session changes its lease."""

from __future__ import annotations

from controlplane.aio.clock import Clock
from controlplane.apiserver.joblets.session import Session
from controlplane.cache.effective_settings import settings_of
from controlplane.cache.snapshot import Snapshot
from controlplane.model import pace, silence
from controlplane.store import keys

# Sessions that change their lease, a second and replica.
_MOVES_A_SECOND = 20.0


class LeaseMoves:
    """Bounds how many sessions of this replica change their lease a second: each change costs a few writes."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._next = 0.0

    def take(self) -> bool:
        now = self._clock.monotonic()
        if now < self._next:
            return False
        self._next = now + 1 / _MOVES_A_SECOND
        return True


def intervals(session: Session, snapshot: Snapshot) -> tuple[float, float]:
    """(seconds between heartbeats, seconds between stats) from now on."""
    settings, targets = settings_of(snapshot), snapshot.count(keys.TARGETS)
    status = snapshot.target_status(session.target)
    paced = pace.pace(settings, targets).heartbeat_seconds
    heartbeat = silence.beat_seconds(paced, float(session.live.lease_seconds))
    busy = snapshot.count(keys.DESIRED, session.target) > 0
    return heartbeat, pace.stats_seconds(settings, targets, busy=busy, phase=status.phase if status else "")


def has_outgrown_lease(session: Session, snapshot: Snapshot) -> bool:
    """Whether the session should have another lease by now."""
    wanted = pace.pace(settings_of(snapshot), snapshot.count(keys.TARGETS))
    return pace.outgrown(float(session.live.lease_seconds), wanted)
