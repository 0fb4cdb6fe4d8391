"""The times between a joblet's silence and the loss of its target, and how the times have to fit together.

In order: a joblet beats every `heartbeat` and holds its session for `joblet_lease`; when the lease runs out the target
is Suspect after `target_suspect`; holders of unique resources are dead within `kill_grace`; the work is given to others
after `target_grace`. Admission refuses settings that do not fit. Settings written by hand are made to fit when read,
always towards patience: no work is given away while a holder may live.
"""

from __future__ import annotations

import math

from msgspec.structs import replace

from controlplane.model.settings import Settings

# etcd keeps no shorter lease, and counts whole seconds.
LEAST_LEASE_SECONDS = 2
# A beat may be lost, and the next beat late.
BEATS_A_LEASE = 3
# Dying takes a moment.
LEAST_KILL_SECONDS = 0.5


def lease_seconds(settings: Settings) -> int:
    """The real time of a session's lease: a holder must not count on more."""
    return max(math.floor(settings.joblet_lease), LEAST_LEASE_SECONDS)


def misfit(settings: Settings) -> tuple[str, str] | None:
    """The field that does not fit the others, and its rule; None when all fit."""
    lease = lease_seconds(settings)
    if settings.joblet_lease < LEAST_LEASE_SECONDS:
        return "joblet_lease", f"must be at least {LEAST_LEASE_SECONDS} s: etcd keeps no shorter lease"
    if settings.heartbeat * BEATS_A_LEASE > lease:
        return "heartbeat", f"must not be above a third of joblet_lease ({lease} s)"
    if settings.kill_grace < LEAST_KILL_SECONDS:
        return "kill_grace", f"must be at least {LEAST_KILL_SECONDS} s: a kill takes a moment"
    if settings.target_grace < settings.kill_grace:
        return "target_grace", f"must not be below kill_grace ({settings.kill_grace} s)"
    if settings.target_suspect > settings.target_grace:
        return "target_suspect", f"must not be above target_grace ({settings.target_grace} s)"
    return None


def fitting(settings: Settings) -> Settings:
    """The same settings if they fit, else the nearest that do."""
    if misfit(settings) is None:
        return settings
    lease = max(settings.joblet_lease, LEAST_LEASE_SECONDS)
    kill = max(settings.kill_grace, LEAST_KILL_SECONDS)
    grace = max(settings.target_grace, kill)
    return replace(
        settings,
        joblet_lease=lease,
        heartbeat=min(settings.heartbeat, math.floor(lease) / BEATS_A_LEASE),
        kill_grace=kill,
        target_grace=grace,
        target_suspect=min(settings.target_suspect, grace),
    )


def beat_seconds(heartbeat: float, lease: float) -> float:
    """The interval of heartbeats of a joblet with these promises."""
    return min(heartbeat, lease / BEATS_A_LEASE) if lease > 0 else heartbeat


# A pod is killed at its time limit and gets 30 s for its end; as much again for the kubelet to act.
POD_STOP_SECONDS = 60.0


def grace_seconds(settings: Settings, stop_within: float) -> float:
    """How long a target's work stays its own; `stop_within` is the promise of the last session for holders."""
    return float(max(settings.target_grace, settings.kill_grace, stop_within))
