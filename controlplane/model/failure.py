"""What happens after an attempt ended: one pure function, decision and reason out."""

from __future__ import annotations

from controlplane.model.fulfilment import EndedTask, ObservedTask

# Ends for which the work itself is not to blame.
RETRIED = frozenset({"TargetLost", "Lost", "Evicted", "Preempted", "Moved"})
DEFAULT_LIMIT = 5


def decide(observed: ObservedTask, *, cancelled: bool) -> str:
    """done, fail, retry or cancel. A retry gets the next attempt number, so attempt n has used n - 1 retries."""
    if observed.phase == "Succeeded":
        return "done"
    if cancelled:
        return "cancel"
    if observed.reason in RETRIED:
        return "retry" if observed.attempt <= DEFAULT_LIMIT else "fail"
    return "cancel" if observed.phase == "Cancelled" else "fail"


def end(observed: ObservedTask, *, cancelled: bool, finished: str) -> EndedTask:
    decision = decide(observed, cancelled=cancelled)
    return EndedTask(
        job=observed.job,
        index=observed.index,
        attempt=observed.attempt,
        phase="Cancelled" if decision == "cancel" else observed.phase,
        decision=decision,
        reason=observed.reason,
        message=observed.message,
        exit_code=observed.exit_code,
        percent=observed.percent,
        artefacts=observed.artefacts,
        started=observed.started,
        finished=observed.finished or finished,
    )
