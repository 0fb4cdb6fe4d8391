"""Target: a place that runs tasks; its status as the leader sees it; its live record as its joblet reports it."""

from __future__ import annotations

import msgspec
from msgspec import field

from controlplane.model.bounds import (
    Amount,
    Amounts,
    Attempts,
    Duration,
    Few,
    Line,
    Measures,
    PositiveCount,
    Revision,
    Seconds,
    SmallCount,
    Text,
    TimeOrEmpty,
)
from controlplane.model.object import Named, Object, Part

# The security levels of pods in a cluster, and the longest stop of a pod.
SECURITY = ("restricted", "baseline")
MOST_GRACE_SECONDS = 86400


def targets_of(name: str, count: int) -> tuple[str, ...]:
    """The targets of one joblet: NAME, or NAME-0, NAME-1 and so on."""
    return (name,) if count == 1 else tuple(f"{name}-{number}" for number in range(count))


class Window(Part, frozen=True, kw_only=True):
    days: Few[Line] = ()
    from_: Line = field(default="", name="from")
    to: Line = ""
    tz: Line = "UTC"


class Target(Named, tag="Target", frozen=True, kw_only=True):
    """`security` and `stop_grace` (seconds) go to the joblet that a replica runs for a `kubeconfig_secret`."""

    driver: Line = ""
    region: Line = ""
    capacity: Amounts | None = None
    max_fulfilments: PositiveCount | None = None
    default_time_limit: Duration | None = None
    windows: Few[Window] = ()
    kubeconfig_secret: Line = ""
    security: Line = ""
    stop_grace: Seconds | None = None
    cordoned: bool = False
    drain: bool = False
    drain_timeout: Seconds | None = None


class TargetStatus(Object, tag="TargetStatus", frozen=True, kw_only=True):
    """`since` is the start of the phase, `drain_since` the time at which a leader first saw the wish to drain.

    `stop_within` is the promise of the last session: a leader that never saw the session must know for how long holders
    of unique resources may outlive it. `driver` is the driver of the last session, for the same reason.
    """

    target: Line
    epoch: Revision
    phase: Line
    reason: Text = ""
    since: TimeOrEmpty = ""
    used: Measures = {}
    free: Measures = {}
    drain_since: TimeOrEmpty = ""
    stop_within: Seconds = 0
    driver: Line = ""


class Hardware(Part, frozen=True, kw_only=True):
    """The machine of a target; memory and disk in bytes."""

    cpu_model: Line = ""
    cpus: SmallCount = 0
    memory: Amount = 0
    disk: Amount = 0
    os: Line = ""
    kernel: Line = ""


class Live(Object, tag="Live", frozen=True, kw_only=True):
    """A joblet's session. The key's lease is the session; `secret_digest` lets the same joblet come back at once.

    `lease_seconds` and `stop_within` are promises to the joblet: holders of unique resources are dead at most
    `stop_within` after the key is gone, whatever the settings say by then. `cluster` is the etcd on which the session
    was opened; `known_attempt` the highest attempt number that the joblet knew when it first came to this etcd.
    `reported` is the time of the last change of `stats`. `leftovers` is the number of attempts that may still live
    there undesired: all living attempts until the joblet has compared them with the full list.
    """

    target: Line
    session: Line
    instance: Line
    secret_digest: Line
    driver: Line
    version: Line = ""
    capacity: Amounts = {}
    stats: Measures = {}
    lease_seconds: Seconds = 0
    stop_within: Seconds = 0
    since: TimeOrEmpty = ""
    leftovers: SmallCount = 0
    cluster: Line = ""
    known_attempt: Attempts = 0
    hardware: Hardware | None = None
    reported: TimeOrEmpty = ""

    def same_but_stats(self, other: Live) -> bool:
        """Whether the other is the same session with the same promises: no input of a decision differs."""
        return msgspec.structs.replace(self, stats=other.stats, reported=other.reported) == other
