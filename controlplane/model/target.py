"""Target: a place that runs tasks; its status as the leader sees it; its live record as its joblet reports it."""

from __future__ import annotations

import msgspec
from msgspec import field

from controlplane.model.object import Named, Object, Part
from controlplane.model.quantity import Number

# What is asked of the pods of a cluster, and how long one that is stopped may take at most.
SECURITY = ("restricted", "baseline")
MOST_GRACE_SECONDS = 86400


class Window(Part, frozen=True, kw_only=True):
    days: tuple[str, ...] = ()
    from_: str = field(default="", name="from")
    to: str = ""
    tz: str = "UTC"


class Target(Named, tag="Target", frozen=True, kw_only=True):
    """`security` and `stop_grace` (seconds) are told to the joblet that a replica runs for a `kubeconfig_secret`."""

    driver: str = ""
    region: str = ""
    capacity: dict[str, Number] | None = None
    max_fulfilments: int | None = None
    default_time_limit: Number | None = None
    windows: tuple[Window, ...] = ()
    kubeconfig_secret: str = ""
    security: str = ""
    stop_grace: Number | None = None
    cordoned: bool = False
    drain: bool = False
    drain_timeout: Number | None = None


class TargetStatus(Object, tag="TargetStatus", frozen=True, kw_only=True):
    """`since` is when the phase began, `drain_since` when the wish to drain was first seen, by whichever leader.

    `stop_within` is what the last session was promised: a leader that never saw it must know for how long holders of
    unique resources may outlive it. `driver` is the last session's, for the same reason.
    """

    target: str
    epoch: int
    phase: str
    reason: str = ""
    since: str = ""
    used: dict[str, Number] = {}
    free: dict[str, Number] = {}
    drain_since: str = ""
    stop_within: Number = 0
    driver: str = ""


class Hardware(Part, frozen=True, kw_only=True):
    """What a target is made of; memory and disk in bytes."""

    cpu_model: str = ""
    cpus: int = 0
    memory: Number = 0
    disk: Number = 0
    os: str = ""
    kernel: str = ""


class Live(Object, tag="Live", frozen=True, kw_only=True):
    """A joblet's session. The key's lease is the session; `secret_digest` lets the same joblet come back at once.

    `lease_seconds` and `stop_within` are what the joblet was promised: holders of unique resources are dead at most
    `stop_within` after the key is gone, whatever the settings say by then. `cluster` is the etcd on which the session
    was opened; `known_attempt` the highest attempt number that the joblet knew when it first came to that etcd.
    `reported` is when `stats` last changed. `leftovers` is how many attempts may still live there that are no longer
    desired: as many as live there at all until the joblet has compared them with the full list.
    """

    target: str
    session: str
    instance: str
    secret_digest: str
    driver: str
    version: str = ""
    capacity: dict[str, Number] = {}
    stats: dict[str, Number] = {}
    lease_seconds: Number = 0
    stop_within: Number = 0
    since: str = ""
    leftovers: int = 0
    cluster: str = ""
    known_attempt: int = 0
    hardware: Hardware | None = None
    reported: str = ""

    def same_but_stats(self, other: Live) -> bool:
        """Whether the other is the same session with the same promises: nothing that anybody decides on differs."""
        return msgspec.structs.replace(self, stats=other.stats, reported=other.reported) == other
