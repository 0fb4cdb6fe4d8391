"""Settings: the cluster-wide choices in `config/settings`; an absent key means all defaults."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, field

from controlplane.model.bounds import MAX_TASKS, Amounts, Count, Few, Line, Name, Weight
from controlplane.model.object import Object, Part

EVERYONE = "*"
_HOUR, _YEAR = 3600, 365 * 86400
# Durations in seconds. `model/silence` makes the times of joblets and holders fit each other.
_UpToHour = Annotated[int, Meta(ge=0, le=_HOUR)] | Annotated[float, Meta(ge=0, le=_HOUR)]
_UpToYear = Annotated[int, Meta(ge=0, le=_YEAR)] | Annotated[float, Meta(ge=0, le=_YEAR)]
_Kept = Annotated[int, Meta(ge=1, le=_YEAR)] | Annotated[float, Meta(ge=1, le=_YEAR)]
_Interval = Annotated[int, Meta(ge=1, le=_HOUR)] | Annotated[float, Meta(ge=1, le=_HOUR)]
_Beat = Annotated[int, Meta(ge=1, le=_HOUR)] | Annotated[float, Meta(ge=0.01, le=_HOUR)]


class Weights(Part, frozen=True, kw_only=True):
    """The weight of each score, 0 to 100: `soft` constraints, how full a target is (`room`), rules that `prefer`,
    neighbours that hurt (`interference`), and recent failures on the target (`reliability`).
    """

    soft: Weight = 30
    room: Weight = 10
    rules: Weight = 30
    interference: Weight = 20
    reliability: Weight = 20


class Quota(Part, frozen=True, kw_only=True):
    """The limits of an owner: orders that are not final, tasks that wait to be placed, placed tasks, and the requests
    of placed tasks.
    """

    orders: Count | None = None
    waiting_tasks: Count | None = None
    live_tasks: Count | None = None
    quantities: Amounts = {}


class Restriction(Part, frozen=True, kw_only=True):
    """What the orders of a role may not ask for. `max_priority` 0 and empty lists restrict nothing.

    strict_targets: the targets that a strict policy may name. images: fronts of the allowed images. preempts, secrets:
    whether orders may stop other work, and whether jobs may name secrets for pulling images. nodes: whether jobs may
    choose nodes of a cluster and bear their taints, those of control-plane nodes among them.
    """

    max_priority: Annotated[int, Meta(ge=0, le=100)] = 0
    strict_targets: Few[Name] = ()
    preempts: bool = True
    images: Few[Line] = ()
    secrets: bool = True
    nodes: bool = True


class Settings(Object, tag="Settings", frozen=True, kw_only=True):
    """Durations in seconds.

    clean_up: how long a finished order is kept. target_grace: how long after the end of its joblet's session a target's
    work is given up; not below kill_grace. joblet_lease: the lease of a session. heartbeat: how often a joblet confirms
    the session. kill_grace: how long a holder of a unique resource may take to die once unconfirmed. cycle_budget: the
    most tasks that a cycle places. placement: `balance` takes the target that is least full with the task, `pack` the
    fullest. quotas: by owner, `*` for all other owners. reservations: for how many tasks or gangs that do not fit yet a
    cycle keeps room. failure_memory: how long a failed attempt counts against its target. history: how long etcd keeps
    old revisions, where the leader compacts. event_ttl: how long an event is kept after its last happening.
    stats_interval: how often a busy target reports statistics while there are few targets. target_suspect: how long
    after the end of its joblet's session a target is called Suspect; such a target gets no new work from the first
    moment. drain_timeout: how long work on a drained target may take, where the drain itself does not say.
    max_waiting_orders, max_waiting_tasks: with so many waiting orders, or waiting tasks, no new order is taken.
    restrictions: by role, what its orders may not ask for. joblet_credential: how long the credential of an enrolled
    joblet is good; the joblet renews it seven times as often.
    """

    default_requests: Amounts = field(default_factory=lambda: {"cpu": 1})
    clean_up: _UpToYear = 3600
    target_grace: _UpToYear = 5
    joblet_lease: _UpToHour = 6
    heartbeat: _Beat = 1
    kill_grace: _UpToHour = 2
    cycle_budget: Annotated[int, Meta(ge=1, le=MAX_TASKS)] = 5000
    placement: Line = "balance"
    weights: Weights = Weights()
    quotas: Annotated[dict[Line, Quota], Meta(max_length=1000)] = {}
    reservations: Annotated[int, Meta(ge=0, le=1000)] = 8
    failure_memory: _UpToYear = 600
    history: _Kept = 3600
    event_ttl: _Kept = 3600
    stats_interval: _Interval = 5
    target_suspect: _UpToYear = 0
    drain_timeout: _UpToYear = 300
    max_waiting_orders: Count = 200_000
    max_waiting_tasks: Count = 2_000_000
    restrictions: Annotated[dict[Line, Restriction], Meta(max_length=16)] = {}
    joblet_credential: _Kept = 7 * 86400

    def quota_of(self, owner: str) -> Quota | None:
        return self.quotas.get(owner) or self.quotas.get(EVERYONE)


DEFAULT = Settings()
