"""The times between a joblet's silence and the loss of its target, and how they have to fit together.

In the order in which they pass: a joblet beats every `heartbeat` and holds its session for `joblet_lease`; when that
runs out its target is Suspect after `target_suspect`; holders of unique resources are dead within `kill_grace`; the
work is given to others after `target_grace`. Admission refuses settings that do not fit. Whoever reads settings that
somebody wrote by hand gets them made to fit, always towards patience: nothing is given away while a holder may live.
"""

from __future__ import annotations

import math

from msgspec.structs import replace

from controlplane.model.settings import Settings

# etcd keeps no shorter lease, and counts whole seconds.
LEAST_LEASE_SECONDS = 2
# One beat may be lost, and the next one late.
BEATS_A_LEASE = 3
# Whoever has to die needs a moment for it.
LEAST_KILL_SECONDS = 0.5


def lease_seconds(settings: Settings) -> int:
    """What a session's lease really lasts: a holder must not count on more."""
    return max(math.floor(settings.joblet_lease), LEAST_LEASE_SECONDS)


def misfit(settings: Settings) -> tuple[str, str] | None:
    """The field that does not fit to the others, and its rule; None when all do."""
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
    """The same when it fits, else the nearest that does."""
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
    """How often a joblet beats that was told these two."""
    return min(heartbeat, lease / BEATS_A_LEASE) if lease > 0 else heartbeat


# A pod is killed at its time limit and gets 30 s for its end; as much again for the kubelet to act.
POD_STOP_SECONDS = 60.0


def kills_holders(driver: str) -> bool:
    """Whether holders of unique resources die by themselves where the joblet is silent. Nothing in a cluster does that:
    a pod runs on until its time limit."""
    return driver != "kubernetes"


def grace_seconds(settings: Settings, stop_within: float) -> float:
    """How long a target's work stays its own; `stop_within` is what its last session was promised for its holders."""
    return float(max(settings.target_grace, settings.kill_grace, stop_within))
