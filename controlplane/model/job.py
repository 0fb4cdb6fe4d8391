"""Job: a definition of work. Field for field what a user may write; `None` means "not said"."""

from __future__ import annotations

from msgspec import field

from controlplane.model.object import Named, Part
from controlplane.model.quantity import Number


class Constraint(Part, frozen=True, kw_only=True):
    label: str = ""
    op: str = "In"
    values: tuple[str, ...] = ()
    weight: Number | None = None


class Constraints(Part, frozen=True, kw_only=True):
    hard: tuple[Constraint, ...] = ()
    soft: tuple[Constraint, ...] = ()


class Toleration(Part, frozen=True, kw_only=True):
    """A taint of nodes that tasks bear; `op` is Equal or Exists, no `effect` means any, `seconds` for how long."""

    key: str = ""
    op: str = "Equal"
    value: str = ""
    effect: str = ""
    seconds: Number | None = None


class FailureMatch(Part, frozen=True, kw_only=True):
    """Each list that is not empty must hold what was observed; `attempts` are numbers, from 1 on."""

    exit_codes: tuple[int, ...] = ()
    reasons: tuple[str, ...] = ()
    attempts: tuple[int, ...] = ()


class FailurePolicy(Part, frozen=True, kw_only=True):
    """`limit`, `backoff`, `backoff_cap` (seconds) and `elsewhere` belong to the action retry."""

    on: FailureMatch | None = None
    action: str = "fail"
    limit: int | None = None
    backoff: Number | None = None
    backoff_cap: Number | None = None
    elsewhere: bool = False


class Job(Named, tag="Job", frozen=True, kw_only=True):
    image: str = ""
    command: tuple[str, ...] = ()
    env: dict[str, str] = {}
    requests: dict[str, Number] | None = None
    time_limit: Number | None = None
    target_policy: str | None = None
    drivers: tuple[str, ...] = ()
    constraints: Constraints | None = None
    affinity: tuple[Constraint, ...] = ()
    anti_affinity: tuple[Constraint, ...] = ()
    spread: str | None = None
    region: str = ""
    prefer: tuple[tuple[str, ...], ...] = ()
    exclusive: bool = False
    class_: str = field(default="", name="class")
    hurt_by: tuple[str, ...] = ()
    preemptible: bool = False
    resources: tuple[str, ...] = ()
    failure_policies: tuple[FailurePolicy, ...] = ()
    work: Number | None = None
    min_chunk: Number | None = None
    max_chunks: int | None = None
    tolerations: tuple[Toleration, ...] = ()
    image_pull_secrets: tuple[str, ...] = ()
