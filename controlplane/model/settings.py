"""Settings: the one object of cluster-wide choices, `config/settings`; absent means all defaults."""

from __future__ import annotations

from msgspec import field

from controlplane.model.object import Object, Part
from controlplane.model.quantity import Number

EVERYONE = "*"


class Weights(Part, frozen=True, kw_only=True):
    """How much each score counts, 0 to 100: `soft` constraints, how full a target is (`room`), rules that `prefer`,
    neighbours that hurt (`interference`), and how often attempts failed there of late (`reliability`)."""

    soft: Number = 30
    room: Number = 10
    rules: Number = 30
    interference: Number = 20
    reliability: Number = 20


class Quota(Part, frozen=True, kw_only=True):
    """The most that one owner may have: orders that are not final, tasks that are placed, and what these request."""

    orders: int | None = None
    live_tasks: int | None = None
    quantities: dict[str, Number] = {}


class Settings(Object, tag="Settings", frozen=True, kw_only=True):
    """Durations in seconds.

    clean_up: how long a finished order is kept. target_grace: how long after its joblet's session ended a target's
    work is given up; not below kill_grace. joblet_lease: the session's lease. heartbeat: how often a joblet confirms
    it. kill_grace: how long a holder of a unique resource may take to die once unconfirmed. cycle_budget: the most
    tasks that one cycle places. placement: `balance` takes the emptiest target first, `pack` the fullest that fits.
    quotas: by owner, `*` for everyone who is not named. reservations: for how many groups that do not fit yet a cycle
    keeps room free. failure_memory: how long a failed attempt counts against its target. history: how long etcd
    remembers what was, where the leader has to see to that. event_ttl: how long an event is kept after it last
    happened. stats_interval: how often a busy target reports stats while there are few of them. target_suspect: how
    long after its joblet's session ended a target is called Suspect; it gets nothing new from the first moment.
    drain_timeout: how long what runs on a drained target may take, where the drain itself does not say.
    max_waiting_orders, max_waiting_tasks: with so many waiting orders, or waiting tasks, no new order is taken.
    """

    default_requests: dict[str, Number] = field(default_factory=lambda: {"cpu": 1})
    clean_up: Number = 3600
    target_grace: Number = 5
    joblet_lease: Number = 6
    heartbeat: Number = 1
    kill_grace: Number = 2
    cycle_budget: int = 5000
    placement: str = "balance"
    weights: Weights = Weights()
    quotas: dict[str, Quota] = {}
    reservations: int = 8
    failure_memory: Number = 600
    history: Number = 3600
    event_ttl: Number = 3600
    stats_interval: Number = 5
    target_suspect: Number = 0
    drain_timeout: Number = 300
    max_waiting_orders: int = 200_000
    max_waiting_tasks: int = 2_000_000

    def quota_of(self, owner: str) -> Quota | None:
        return self.quotas.get(owner) or self.quotas.get(EVERYONE)


DEFAULT = Settings()
