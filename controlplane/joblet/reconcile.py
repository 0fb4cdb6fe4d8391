"""The decision about one fulfilment: desired, stored and seen in, start, stop and report out. Pure.

An attempt is never started twice: an attempt is started only when it is not seen here and its `Starting` is stored
under a session whose starts would all be seen here. Any other attempt that is stored as begun, and is not seen, is
lost.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from controlplane.model.fulfilment import Fulfilment, Observed, ObservedTask, TaskRef
from controlplane.model.task import ALIVE, ENDED, AttemptPhase


@dataclass(frozen=True, slots=True)
class FulfilmentDecision:
    """`tasks` is the newest observation of every task, which may be reported before `start` and `stop` are done."""

    phase: str
    tasks: tuple[ObservedTask, ...]
    start: tuple[TaskRef, ...] = ()
    stop: tuple[TaskRef, ...] = ()


def decide(
    desired: Fulfilment,
    stored: Observed | None,
    seen: Mapping[TaskRef, ObservedTask],
    *,
    trusted: bool,
    attempt_floor: int = 0,
    stops_single_tasks: bool = True,
) -> FulfilmentDecision:
    """The decision about one fulfilment.

    `trusted`: every attempt that was started under the session of `stored` would be in `seen`. Attempts up to
    `attempt_floor` may have been started before the control plane was restored, and are never started again. A driver
    without `stops_single_tasks` is asked for a stop only when all tasks that live are to stop.
    """
    # Built only for tasks that are not seen, which are few most of the time.
    reported: dict[TaskRef, ObservedTask] | None = None
    tasks: list[ObservedTask] = []
    start: list[TaskRef] = []
    stop: list[TaskRef] = []
    for ref in desired.tasks:
        actual = seen.get(ref)
        if actual is not None:
            tasks.append(actual)
            if actual.phase in ALIVE and desired.why_stop(ref.job, ref.index) is not None:
                stop.append(ref)
            continue
        if reported is None:
            reported = {ref_of(task): task for task in stored.tasks} if stored is not None else {}
        task, may_start = _unseen(desired, ref, reported.get(ref), trusted)
        if ref.attempt <= attempt_floor and task.phase == AttemptPhase.STARTING:
            task, may_start = lost(ref, "it may have been started before the control plane was restored"), False
        tasks.append(task)
        if may_start:
            start.append(ref)
    if stop and not stops_single_tasks and len(stop) < sum(task.phase in ALIVE for task in tasks):
        stop = []
    return FulfilmentDecision(fold([task.phase for task in tasks]), tuple(tasks), tuple(start), tuple(stop))


def _unseen(
    desired: Fulfilment, ref: TaskRef, reported: ObservedTask | None, trusted: bool
) -> tuple[ObservedTask, bool]:
    if reported is not None and reported.phase in ENDED:
        return reported, False
    if reported is not None and (reported.phase != AttemptPhase.STARTING or not trusted):
        return lost(ref, "nothing is left of it on this target"), False
    if (why := desired.why_stop(ref.job, ref.index)) is not None:
        return observed_task(ref, AttemptPhase.CANCELLED, reason=why), False
    return observed_task(ref, AttemptPhase.STARTING), reported is not None


def may_still_appear(desired: Fulfilment, stored: Observed | None, seen: Collection[TaskRef], *, trusted: bool) -> bool:
    """Whether a joblet elsewhere was about to start a holder. Such a holder may still appear: were it called lost now,
    its unique resource could get a second holder."""
    begun = stored is not None and any(task.phase == AttemptPhase.STARTING for task in stored.tasks)
    return bool(desired.holds) and begun and not trusted and not seen


def fold(phases: list[str]) -> str:
    """The phase of the fulfilment: Starting until a task runs, Running until all tasks ended."""
    if len(phases) == 1:
        return phases[0]
    if all(phase in ENDED for phase in phases):
        worst_first = (AttemptPhase.FAILED, AttemptPhase.CANCELLED, AttemptPhase.SUCCEEDED)
        return next(phase for phase in worst_first if phase in phases)
    return AttemptPhase.STARTING if all(phase == AttemptPhase.STARTING for phase in phases) else AttemptPhase.RUNNING


def ref_of(task: ObservedTask) -> TaskRef:
    return TaskRef(job=task.job, index=task.index, attempt=task.attempt)


def observed_task(ref: TaskRef, phase: str, *, reason: str = "", message: str = "") -> ObservedTask:
    return ObservedTask(job=ref.job, index=ref.index, attempt=ref.attempt, phase=phase, reason=reason, message=message)


def lost(ref: TaskRef, message: str) -> ObservedTask:
    return observed_task(ref, AttemptPhase.FAILED, reason="Lost", message=message)
