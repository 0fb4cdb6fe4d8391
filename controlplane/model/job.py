"""Job: a definition of work. Each field as a user writes it; `None` means "not said"."""

from __future__ import annotations

from msgspec import field

from controlplane.model.bounds import (
    Amount,
    Amounts,
    Duration,
    ExitCode,
    Few,
    Line,
    LongText,
    Many,
    PositiveCount,
    Seconds,
    SmallCount,
    Text,
    Texts,
    Weight,
)
from controlplane.model.object import Named, Part


class Constraint(Part, frozen=True, kw_only=True):
    label: Line = ""
    op: Line = "In"
    values: Few[Line] = ()
    weight: Weight | None = None


class Constraints(Part, frozen=True, kw_only=True):
    hard: Few[Constraint] = ()
    soft: Few[Constraint] = ()


class Toleration(Part, frozen=True, kw_only=True):
    """A taint of nodes that tasks bear; `op` is Equal or Exists, no `effect` means any, `seconds` bounds the time."""

    key: Line = ""
    op: Line = "Equal"
    value: Line = ""
    effect: Line = ""
    seconds: Seconds | None = None


class FailureMatch(Part, frozen=True, kw_only=True):
    """Each non-empty list must contain the observed value; `attempts` are numbers from 1 on."""

    exit_codes: Few[ExitCode] = ()
    reasons: Few[Line] = ()
    attempts: Few[PositiveCount] = ()


class FailurePolicy(Part, frozen=True, kw_only=True):
    """`limit`, `backoff`, `backoff_cap` (seconds) and `elsewhere` belong to the action retry."""

    on: FailureMatch | None = None
    action: Line = "fail"
    limit: SmallCount | None = None
    backoff: Seconds | None = None
    backoff_cap: Seconds | None = None
    elsewhere: bool = False


class Job(Named, tag="Job", frozen=True, kw_only=True):
    image: Text = ""
    command: Many[LongText] = ()
    env: Texts = {}
    requests: Amounts | None = None
    time_limit: Duration | None = None
    target_policy: Line | None = None
    drivers: Few[Line] = ()
    constraints: Constraints | None = None
    affinity: Few[Constraint] = ()
    anti_affinity: Few[Constraint] = ()
    spread: Line | None = None
    region: Line = ""
    prefer: Few[Many[Line]] = ()
    exclusive: bool = False
    class_: Line = field(default="", name="class")
    hurt_by: Few[Line] = ()
    preemptible: bool = False
    resources: Many[Line] = ()
    failure_policies: Few[FailurePolicy] = ()
    work: Amount | None = None
    min_chunk: Amount | None = None
    max_chunks: PositiveCount | None = None
    tolerations: Few[Toleration] = ()
    image_pull_secrets: Few[Line] = ()
