"""The consequences of an ended attempt: a pure function, decision and reason out.

The first matching policy decides: policies of the order, then of the job, then the defaults, which match every end.
`limit` counts retries, for each policy and each reason by itself. A preempted attempt is not to blame for its end: only
a policy that names Preempted decides about preemption, and by default the attempt is tried again without limit. Time
comes in as `now`, and the jitter of a delay follows from the attempt's own name, so that the same end always leads to
the same decision.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import NamedTuple

from controlplane.model import times
from controlplane.model.fulfilment import EndedTask, ObservedTask
from controlplane.model.job import FailureMatch, FailurePolicy
from controlplane.model.task import AttemptPhase, TaskEvent

FAILED = "Failed"
DEADLINE_EXCEEDED = "DeadlineExceeded"
PREEMPTED = "Preempted"
# Why the leader asks for a stop without a failure.
CANCELLED, MOVED, ORDER_FAILED = "Cancelled", "Moved", "OrderFailed"

# The reasons that policies may name. Any other reason counts as Failed.
REASONS = (
    FAILED, "StartError", "ImageError", "TimedOut", "Evicted", PREEMPTED, "TargetLost", "Lost", DEADLINE_EXCEEDED,
    "Declined",
)  # fmt: skip
ACTIONS = (TaskEvent.RETRY, TaskEvent.IGNORE, TaskEvent.FAIL, TaskEvent.FAIL_ORDER, TaskEvent.HOLD)
# Ends for which the work itself is not to blame.
RETRIED = frozenset({"TargetLost", "Lost", "Evicted", PREEMPTED})
DEFAULT_LIMIT = 5
DEFAULT_CAP_SECONDS = 3600
_JITTER = 0.2
_MOST_DOUBLINGS = 40
_MOST_AVOIDED = 16
DEFAULTS = (
    FailurePolicy(on=FailureMatch(reasons=tuple(sorted(RETRIED))), action=TaskEvent.RETRY, limit=DEFAULT_LIMIT),
    FailurePolicy(action=TaskEvent.FAIL),
)

# How often a task was tried again, by policy and reason.
Retried = Mapping[tuple[str, str], int]


@dataclass(frozen=True, slots=True)
class Circumstances:
    """Inputs of a decision beside the end itself.

    `until`: the latest start of the next attempt within the order's deadline. `avoid`: targets that this task avoids
    already. `cancelled` and `moved` are wishes of a person about exactly this attempt.
    """

    order: str = ""
    target: str = ""
    now: str = ""
    of_order: Sequence[FailurePolicy] = ()
    of_job: Sequence[FailurePolicy] = ()
    retried: Retried = field(default_factory=dict)
    avoid: tuple[str, ...] = ()
    until: str | None = None
    cancelled: bool = False
    moved: bool = False


class FailureDecision(NamedTuple):
    """`policy` names the deciding policy, such as `job[1]`; `elsewhere`: not on this target again."""

    action: TaskEvent
    why: str = ""
    policy: str = ""
    not_before: str | None = None
    elsewhere: bool = False


def decide(observed: ObservedTask, circumstances: Circumstances) -> FailureDecision:
    """done, cancel or move without a policy; else retry, ignore, fail, fail_order or hold."""
    if observed.phase == AttemptPhase.SUCCEEDED:
        return FailureDecision(TaskEvent.DONE)
    if circumstances.cancelled:
        return FailureDecision(TaskEvent.CANCEL, "it was cancelled")
    if observed.phase == AttemptPhase.CANCELLED:
        if circumstances.moved or observed.reason == MOVED:
            return FailureDecision(TaskEvent.MOVE, f"it was moved away from {circumstances.target}", elsewhere=True)
        if observed.reason not in REASONS:
            return FailureDecision(TaskEvent.CANCEL, "it was cancelled")
    reason = reason_of(observed.reason)
    for name, policy in _in_order(circumstances):
        if matches(policy.on, observed, reason):
            return _follow(policy, name, reason, observed, circumstances)
    raise AssertionError("the defaults match everything")


def reason_of(reason: str) -> str:
    """The reason in the words of policies."""
    return reason if reason in REASONS else FAILED


def matches(on: FailureMatch | None, observed: ObservedTask, reason: str) -> bool:
    """Each non-empty list must contain the observed value; Preempted must be named."""
    if on is None or (reason == PREEMPTED and PREEMPTED not in on.reasons):
        return reason != PREEMPTED
    return (
        (not on.exit_codes or observed.exit_code in on.exit_codes)
        and (not on.reasons or reason in on.reasons)
        and (not on.attempts or observed.attempt in on.attempts)
    )


def _in_order(circumstances: Circumstances) -> Iterator[tuple[str, FailurePolicy]]:
    for name, policies in (("order", circumstances.of_order), ("job", circumstances.of_job), ("default", DEFAULTS)):
        for position, policy in enumerate(policies):
            yield f"{name}[{position}]", policy


def _follow(
    policy: FailurePolicy, name: str, reason: str, observed: ObservedTask, circumstances: Circumstances
) -> FailureDecision:
    said = f"{reason}: policy {name}"
    match policy.action:
        case TaskEvent.RETRY:
            return _retry(policy, name, reason, observed, circumstances)
        case TaskEvent.IGNORE:
            return FailureDecision(TaskEvent.IGNORE, f"{said} counts it as done", name)
        case TaskEvent.FAIL_ORDER:
            return FailureDecision(TaskEvent.FAIL_ORDER, f"{said} fails the whole order", name)
        case TaskEvent.HOLD:
            return FailureDecision(TaskEvent.HOLD, f"{said} holds it until it is released", name)
    return FailureDecision(TaskEvent.FAIL, f"{said} fails it", name)


def _retry(
    policy: FailurePolicy, name: str, reason: str, observed: ObservedTask, circumstances: Circumstances
) -> FailureDecision:
    said = f"{reason}: policy {name}"
    if reason == PREEMPTED and name == "default[0]":
        return FailureDecision(TaskEvent.RETRY, f"{said} tries again, however often that happens", name)
    limit = DEFAULT_LIMIT if policy.limit is None else policy.limit
    before = circumstances.retried.get((name, reason), 0)
    if before >= limit:
        return FailureDecision(TaskEvent.FAIL, f"{said} tried again {before} times, which is its limit", name)
    seconds = delay(policy, before, f"{circumstances.order}/{observed.job}/{observed.index}/{observed.attempt}")
    not_before = _later(circumstances.now, seconds) if seconds else None
    if circumstances.until is not None and (not_before or circumstances.now) > circumstances.until:
        return FailureDecision(TaskEvent.FAIL, f"{reason}: the order's deadline leaves no time to try again", name)
    where = ", elsewhere" if policy.elsewhere else ""
    why = f"{said} tries again, {before + 1} of {limit}{where}"
    return FailureDecision(TaskEvent.RETRY, why, name, not_before, policy.elsewhere)


def delay(policy: FailurePolicy, retries: int, seed: str) -> float:
    """Seconds until the next attempt: doubled with each retry, with a little jitter, never above the cap."""
    first = float(policy.backoff or 0)
    if not first:
        return 0.0
    cap = float(DEFAULT_CAP_SECONDS if policy.backoff_cap is None else policy.backoff_cap)
    chance = int.from_bytes(hashlib.blake2b(seed.encode(), digest_size=4).digest()) / 2**32
    grown = first * 2.0 ** min(retries, _MOST_DOUBLINGS)
    return min(grown * (1 + _JITTER * chance), max(cap, first))


def _later(now: str, seconds: float) -> str:
    return times.show(times.parse(now, "now") + timedelta(seconds=seconds))


def end(observed: ObservedTask, circumstances: Circumstances) -> EndedTask:
    """The attempt's end for the record, with the decision."""
    decision = decide(observed, circumstances)
    cancelled = decision.action in (TaskEvent.CANCEL, TaskEvent.MOVE)
    return EndedTask(
        job=observed.job,
        index=observed.index,
        attempt=observed.attempt,
        phase=AttemptPhase.CANCELLED if cancelled else observed.phase,
        decision=decision.action,
        policy=decision.policy,
        why=decision.why,
        reason=observed.reason,
        message=observed.message,
        exit_code=observed.exit_code,
        percent=observed.percent,
        artefacts=observed.artefacts,
        started=observed.started,
        finished=observed.finished or circumstances.now,
        not_before=decision.not_before,
        avoid=_avoided(decision, circumstances),
    )


def _avoided(decision: FailureDecision, circumstances: Circumstances) -> tuple[str, ...]:
    """Targets that the next attempt avoids: all targets that earlier decisions named, too."""
    if decision.action not in (TaskEvent.RETRY, TaskEvent.MOVE, TaskEvent.HOLD):
        return ()
    if not decision.elsewhere or not circumstances.target:
        return circumstances.avoid
    return (*(name for name in circumstances.avoid if name != circumstances.target), circumstances.target)[
        -_MOST_AVOIDED:
    ]
