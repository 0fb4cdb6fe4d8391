"""The pace of joblets: heartbeats, leases and statistics, by the settings and the number of targets.

The cost of a target must not grow with the number of targets, so that intervals grow instead. The settings are the
lower bound. The number counts in powers of two, so that another target does not change the promises of all others. All
replicas compute the pace from the same state: the settings, the targets, and the leader's status of each target.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from controlplane.model import silence
from controlplane.model.settings import Settings

# All targets together: heartbeats a second, and stats a second while idle and while busy.
BEATS_A_SECOND = 96.0
REPORTS_A_SECOND = 32.0
BUSY_REPORTS_A_SECOND = 128.0
# An idle target reports this much less often than a busy target, even with few targets.
IDLE_FACTOR = 3
_WATCHED = frozenset({"Suspect", "Failed", "Draining"})


class Pace(NamedTuple):
    """The heartbeat of a session: its interval, and the time of the lease."""

    heartbeat_seconds: float
    lease_seconds: int


def pace(settings: Settings, targets: int) -> Pace:
    many = counted(targets)
    heartbeat = max(float(settings.heartbeat), many / BEATS_A_SECOND)
    lease = max(silence.lease_seconds(settings), math.ceil(heartbeat * silence.BEATS_A_LEASE))
    return Pace(heartbeat, lease)


def stats_seconds(settings: Settings, targets: int, *, busy: bool, phase: str = "") -> float:
    """The interval of a target's reports: shorter when busy, or when the phase asks for attention."""
    many = counted(targets)
    floor = float(settings.stats_interval)
    if busy or phase in _WATCHED:
        return max(floor, many / BUSY_REPORTS_A_SECOND)
    return max(floor * IDLE_FACTOR, many / REPORTS_A_SECOND)


def counted(targets: int) -> int:
    """The number of targets as it counts: the next power of two."""
    return 1 << max(targets - 1, 0).bit_length()


def outgrown(lease_seconds: float, wanted: Pace) -> bool:
    """Whether a session's lease is too short for the wanted heartbeat, or needlessly long."""
    return wanted.lease_seconds >= 2 * lease_seconds or 4 * wanted.lease_seconds <= lease_seconds
