"""Settings: the one object of cluster-wide choices, `config/settings`; absent means all defaults."""

from __future__ import annotations

from msgspec import field

from controlplane.model.object import Object
from controlplane.model.quantity import Number


class Settings(Object, tag="Settings", frozen=True, kw_only=True):
    """Durations in seconds.

    clean_up: how long a finished order is kept. target_grace: how long after its joblet's session ended a target's
    work is given up; not below kill_grace. joblet_lease: the session's lease. heartbeat: how often a joblet confirms
    it. kill_grace: how long a holder of a unique resource may take to die once unconfirmed. cycle_budget: the most
    tasks that one cycle places.
    """

    default_requests: dict[str, Number] = field(default_factory=lambda: {"cpu": 1})
    clean_up: Number = 3600
    target_grace: Number = 5
    joblet_lease: Number = 6
    heartbeat: Number = 1
    kill_grace: Number = 2
    cycle_budget: int = 5000


DEFAULT = Settings()
