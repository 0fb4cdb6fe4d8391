"""What happens after an attempt ended: one pure function, decision and reason out.

The first policy that matches decides: those of the order, then those of the job, then the defaults, which match
everything. `limit` counts retries, for each policy and each reason by itself. A preempted attempt is not to blame for
its end: only a policy that names Preempted decides about it, and by default it is tried again without limit. Time
comes in as `now`, and what looks random in a delay follows from the attempt's own name, so the same end always leads
to the same decision.
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

FAILED = "Failed"
DEADLINE_EXCEEDED = "DeadlineExceeded"
PREEMPTED = "Preempted"
# Why the leader asks for a stop when nobody failed.
CANCELLED, MOVED, ORDER_FAILED = "Cancelled", "Moved", "OrderFailed"

# What policies may name. An end for any other reason counts as Failed.
REASONS = (
    FAILED, "StartError", "ImageError", "TimedOut", "Evicted", PREEMPTED, "TargetLost", "Lost", DEADLINE_EXCEEDED,
    "Declined",
)  # fmt: skip
ACTIONS = ("retry", "ignore", "fail", "fail_order", "hold")
# Ends for which the work itself is not to blame.
RETRIED = frozenset({"TargetLost", "Lost", "Evicted", PREEMPTED})
DEFAULT_LIMIT = 5
DEFAULT_CAP_SECONDS = 3600
_JITTER = 0.2
_MOST_DOUBLINGS = 40
_MOST_AVOIDED = 16
DEFAULTS = (
    FailurePolicy(on=FailureMatch(reasons=tuple(sorted(RETRIED))), action="retry", limit=DEFAULT_LIMIT),
    FailurePolicy(action="fail"),
)

# How often a task was tried again, by policy and reason.
Retried = Mapping[tuple[str, str], int]


@dataclass(frozen=True, slots=True)
class Circumstances:
    """What a decision depends on beside the end itself.

    `until`: when the next attempt must begin to make the order's deadline. `avoid`: targets that this task avoids
    already. `cancelled` and `moved` are wishes of a person about this very attempt.
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


class Decision(NamedTuple):
    """`policy` is the one that decided, such as `job[1]`; `elsewhere`: not on this target again."""

    action: str
    why: str = ""
    policy: str = ""
    not_before: str | None = None
    elsewhere: bool = False


def decide(observed: ObservedTask, known: Circumstances) -> Decision:
    """done, cancel or move where no policy is asked; else retry, ignore, fail, fail_order or hold."""
    if observed.phase == "Succeeded":
        return Decision("done")
    if known.cancelled:
        return Decision("cancel", "it was cancelled")
    if observed.phase == "Cancelled":
        if known.moved or observed.reason == MOVED:
            return Decision("move", f"it was moved away from {known.target}", elsewhere=True)
        if observed.reason not in REASONS:
            return Decision("cancel", "it was cancelled")
    reason = reason_of(observed.reason)
    for name, policy in _in_order(known):
        if matches(policy.on, observed, reason):
            return _follow(policy, name, reason, observed, known)
    raise AssertionError("the defaults match everything")


def reason_of(reason: str) -> str:
    """As policies know it."""
    return reason if reason in REASONS else FAILED


def matches(on: FailureMatch | None, observed: ObservedTask, reason: str) -> bool:
    """Each list that is not empty must hold what was observed; Preempted must be named."""
    if on is None or (reason == PREEMPTED and PREEMPTED not in on.reasons):
        return reason != PREEMPTED
    return (
        (not on.exit_codes or observed.exit_code in on.exit_codes)
        and (not on.reasons or reason in on.reasons)
        and (not on.attempts or observed.attempt in on.attempts)
    )


def _in_order(known: Circumstances) -> Iterator[tuple[str, FailurePolicy]]:
    for name, policies in (("order", known.of_order), ("job", known.of_job), ("default", DEFAULTS)):
        for position, policy in enumerate(policies):
            yield f"{name}[{position}]", policy


def _follow(policy: FailurePolicy, name: str, reason: str, observed: ObservedTask, known: Circumstances) -> Decision:
    said = f"{reason}: policy {name}"
    match policy.action:
        case "retry":
            return _retry(policy, name, reason, observed, known)
        case "ignore":
            return Decision("ignore", f"{said} counts it as done", name)
        case "fail_order":
            return Decision("fail_order", f"{said} fails the whole order", name)
        case "hold":
            return Decision("hold", f"{said} holds it until it is released", name)
    return Decision("fail", f"{said} fails it", name)


def _retry(policy: FailurePolicy, name: str, reason: str, observed: ObservedTask, known: Circumstances) -> Decision:
    if reason == PREEMPTED and name == "default[0]":
        return Decision("retry", f"{reason}: policy {name} tries again, however often that happens", name)
    limit = DEFAULT_LIMIT if policy.limit is None else policy.limit
    before = known.retried.get((name, reason), 0)
    if before >= limit:
        return Decision("fail", f"{reason}: policy {name} tried again {before} times, which is its limit", name)
    seconds = delay(policy, before, f"{known.order}/{observed.job}/{observed.index}/{observed.attempt}")
    not_before = _later(known.now, seconds) if seconds else None
    if known.until is not None and (not_before or known.now) > known.until:
        return Decision("fail", f"{reason}: the order's deadline leaves no time to try again", name)
    where = ", elsewhere" if policy.elsewhere else ""
    why = f"{reason}: policy {name} tries again, {before + 1} of {limit}{where}"
    return Decision("retry", why, name, not_before, policy.elsewhere)


def delay(policy: FailurePolicy, retries: int, seed: str) -> float:
    """Seconds until the next attempt: doubled with each retry, a little longer by chance, never above the cap."""
    first = float(policy.backoff or 0)
    if not first:
        return 0.0
    cap = float(DEFAULT_CAP_SECONDS if policy.backoff_cap is None else policy.backoff_cap)
    chance = int.from_bytes(hashlib.blake2b(seed.encode(), digest_size=4).digest()) / 2**32
    grown = first * 2.0 ** min(retries, _MOST_DOUBLINGS)
    return min(grown * (1 + _JITTER * chance), max(cap, first))


def _later(now: str, seconds: float) -> str:
    return times.show(times.parse(now, "now") + timedelta(seconds=seconds))


def end(observed: ObservedTask, known: Circumstances) -> EndedTask:
    """The attempt's end on record, with what was decided."""
    decision = decide(observed, known)
    cancelled = decision.action in ("cancel", "move")
    return EndedTask(
        job=observed.job,
        index=observed.index,
        attempt=observed.attempt,
        phase="Cancelled" if cancelled else observed.phase,
        decision=decision.action,
        policy=decision.policy,
        why=decision.why,
        reason=observed.reason,
        message=observed.message,
        exit_code=observed.exit_code,
        percent=observed.percent,
        artefacts=observed.artefacts,
        started=observed.started,
        finished=observed.finished or known.now,
        not_before=decision.not_before,
        avoid=_avoided(decision, known),
    )


def _avoided(decision: Decision, known: Circumstances) -> tuple[str, ...]:
    """Where the next attempt does not go: one that follows keeps away from all targets that the ones before named."""
    if decision.action not in ("retry", "move", "hold"):
        return ()
    if not decision.elsewhere or not known.target:
        return known.avoid
    return (*(name for name in known.avoid if name != known.target), known.target)[-_MOST_AVOIDED:]
