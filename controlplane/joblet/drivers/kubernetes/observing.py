"""The meaning of a pod's status for the tasks of its containers. Pure.

A task has ended only when the cluster itself says that its container has ended: a container on a node that does not
answer, in a pod that is being deleted, or in a pod that has failed already, may still run. `hopeless` names pods that
will never start: the driver deletes such a pod, and the attempt has ended only when the pod is gone.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any, Literal

import msgspec

from controlplane.joblet.drivers.kubernetes import pod as pods
from controlplane.joblet.drivers.kubernetes.results import parse_termination, progress
from controlplane.joblet.reconcile import observed_task
from controlplane.model import texts, times
from controlplane.model.errors import Invalid
from controlplane.model.fulfilment import ObservedTask, TaskRef
from controlplane.model.task import AttemptPhase

Status = Mapping[str, Any]

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

STOPPING = "controlplane/stopping"
UNSCHEDULABLE, NODE_LOST, OOM = "Unschedulable", "NodeLost", "OOMKilled"
# Reasons of a waiting container that are, for failure policies, ImageError and StartError.
IMAGE_REASONS = frozenset(
    {"ErrImagePull", "ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull", "ImageInspectError",
     "RegistryUnavailable", "SignatureValidationFailed"}
)  # fmt: skip
START_REASONS = frozenset(
    {"CreateContainerConfigError", "CreateContainerError", "RunContainerError", "PreCreateHookError",
     "PreStartHookError", "PostStartHookError", "CrashLoopBackOff", "CreatePodSandboxError"}
)  # fmt: skip
# These never pass. An image that would run as root does not either: other causes of the same reason may pass, such as a
# missing Secret, so the kubelet's message decides.
FATAL = frozenset({"InvalidImageName", "ErrImageNeverPull"})
_CONFIG_ERROR = "CreateContainerConfigError"
_ROOT_REFUSED = ("runAsNonRoot", "non-root policy")
_ROOT_HINT = "; images that run as root need --security baseline of the joblet (of a hosted target: security: baseline)"
_CANNOT_RUN = frozenset({"ContainerCannotRun", "StartError"})
_UNKNOWN_END = frozenset({"ContainerStatusUnknown"})
_LOST_NODE = frozenset({NODE_LOST, "NodeStatusUnknown"})
_TIMED_OUT = "DeadlineExceeded"


class Stopping(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The annotation `controlplane/stopping`: why the driver deletes the pod, and the phase of the tasks it ends."""

    phase: str = AttemptPhase.CANCELLED
    reason: str = ""
    message: str = ""


def observe(pod: Mapping[str, Any]) -> dict[TaskRef, ObservedTask]:
    """The newest observation of each task, by its container; empty for a pod that does not name its tasks."""
    status = _part(pod, "status")
    states = {container.get("name"): container for container in status.get("containerStatuses") or ()}
    refs = pods.refs_of(pod)
    observed: dict[TaskRef, ObservedTask] = {}
    for position, ref in enumerate(refs):
        name = pods.container_of(position)
        state = _part(states.get(name, {}), "state")
        if ended := state.get("terminated"):
            observed[ref] = _ended(pod, ref, ended, int(states[name].get("restartCount") or 0))
        elif "running" in state:
            observed[ref] = _running(pod, ref, name, state["running"] or {}, alone=len(refs) == 1)
        elif status.get("phase") in ("Succeeded", "Failed"):
            observed[ref] = _over(pod, ref)
        else:
            observed[ref] = _waiting(pod, ref, _part(state, "waiting"))
    return observed


def stopping_of(pod: Mapping[str, Any]) -> Stopping | None:
    """The note of the driver from when it began to stop the pod."""
    try:
        return msgspec.json.decode(_annotations(pod)[STOPPING], type=Stopping)
    except (KeyError, msgspec.DecodeError):
        return None


def hopeless(pod: Mapping[str, Any], *, patience_over: bool) -> Stopping | None:
    """Why the driver should stop the pod on its own: no container runs, and those that wait cannot start.

    Most of these reasons may pass, a registry may come back: they count only when the driver's patience is over.
    """
    status = _part(pod, "status")
    if status.get("phase") in ("Succeeded", "Failed"):
        return None
    states = [_part(container, "state") for container in status.get("containerStatuses") or ()]
    if any("running" in state for state in states):
        return None
    for state in states:
        waiting = _part(state, "waiting")
        reason, failure = str(waiting.get("reason", "")), _why_waiting(str(waiting.get("reason", "")))
        if failure and (patience_over or reason in FATAL or _wants_root(waiting)):
            return Stopping(phase=AttemptPhase.FAILED, reason=failure, message=_why_not_started(waiting))
    if patience_over and (condition := _unschedulable(status)) is not None:
        message = _message(UNSCHEDULABLE, condition.get("message"))
        return Stopping(phase=AttemptPhase.FAILED, reason="Evicted", message=message)
    return None


def vanished(ref: TaskRef, last: Mapping[str, Any] | None) -> ObservedTask:
    """The end of a task whose pod is gone from the API. `last` is the pod as last seen: a stop under way is done
    then."""
    stopping = stopping_of(last) if last is not None else None
    if stopping is not None:
        return observed_task(ref, stopping.phase, reason=stopping.reason, message=stopping.message)
    message = "its pod was deleted by somebody else" if last is not None else "there is no pod of it any more"
    return observed_task(ref, AttemptPhase.FAILED, reason="Lost", message=message)


def _waiting(pod: Mapping[str, Any], ref: TaskRef, waiting: Status) -> ObservedTask:
    status = _part(pod, "status")
    reason = str(waiting.get("reason", ""))
    if failure := _why_waiting(reason):
        return observed_task(ref, AttemptPhase.STARTING, reason=failure, message=_why_not_started(waiting))
    if (condition := _unschedulable(status)) is not None:
        message = _message(UNSCHEDULABLE, condition.get("message"))
        return observed_task(ref, AttemptPhase.STARTING, reason=UNSCHEDULABLE, message=message)
    if _is_lost(status):
        message = _message(NODE_LOST, status.get("message"))
        return observed_task(ref, AttemptPhase.STARTING, reason=NODE_LOST, message=message)
    return observed_task(ref, AttemptPhase.STARTING)


def _running(pod: Mapping[str, Any], ref: TaskRef, name: str, running: Status, *, alone: bool) -> ObservedTask:
    status = _part(pod, "status")
    reason = NODE_LOST if _is_lost(status) else str(status.get("reason") or "")
    message = _message(reason, status.get("message")) if reason else ""
    seen = observed_task(ref, AttemptPhase.RUNNING, reason=reason, message=message)
    percent = progress(_annotations(pod), name, alone=alone)
    return msgspec.structs.replace(seen, started=_time(running.get("startedAt")), percent=percent)


def _ended(pod: Mapping[str, Any], ref: TaskRef, ended: Status, restarts: int) -> ObservedTask:
    """A container that succeeded counts as succeeded, whatever became of its pod."""
    report = parse_termination(str(ended.get("message") or ""))
    code = ended.get("exitCode")
    failed = code != 0 or ended.get("reason") in _UNKNOWN_END
    success = (AttemptPhase.SUCCEEDED, "", report.message)
    phase, reason, message = _failure(pod, ended, report.message) if failed else success
    if restarts > 0:
        message = _message(f"the cluster restarted it {restarts} times", message)
    return msgspec.structs.replace(
        observed_task(ref, phase, reason=reason, message=message),
        exit_code=code if isinstance(code, int) and reason not in ("Lost", "StartError") else None,
        percent=report.percent,
        artefacts=report.artefacts,
        started=_time(ended.get("startedAt")),
        finished=_time(ended.get("finishedAt")),
    )


def _failure(pod: Mapping[str, Any], ended: Status, message: str) -> tuple[str, str, str]:
    """Why a container ended without success: the fate of its pod explains more than the state of the container."""
    stopping = stopping_of(pod)
    if stopping is not None:
        return stopping.phase, stopping.reason, stopping.message or message
    status = _part(pod, "status")
    why = str(ended.get("reason") or "")
    if status.get("reason") == _TIMED_OUT:
        return AttemptPhase.FAILED, "TimedOut", _message("", status.get("message"))
    if why == OOM:
        return AttemptPhase.FAILED, OOM, message or "it needed more memory than it requested"
    if why in _CANNOT_RUN:
        return AttemptPhase.FAILED, "StartError", message or why
    if why in _UNKNOWN_END:
        return AttemptPhase.FAILED, "Lost", _message(why, message)
    if (evicted := _evicted(pod)) is not None:
        return AttemptPhase.FAILED, "Evicted", evicted
    return AttemptPhase.FAILED, "Failed", message


def _over(pod: Mapping[str, Any], ref: TaskRef) -> ObservedTask:
    """The pod has ended without a status of this container: the container never ran, or its end is unknown."""
    status = _part(pod, "status")
    stopping = stopping_of(pod)
    reason = str(status.get("reason") or "")
    if stopping is not None:
        return observed_task(ref, stopping.phase, reason=stopping.reason, message=stopping.message)
    if reason == _TIMED_OUT:
        return observed_task(ref, AttemptPhase.FAILED, reason="TimedOut", message=_message("", status.get("message")))
    if reason in _LOST_NODE or status.get("phase") == "Succeeded" or not (reason or _disruption(status)):
        return observed_task(ref, AttemptPhase.FAILED, reason="Lost", message=_message(reason, status.get("message")))
    # Refused by the kubelet (OutOfcpu, NodeAffinity, ...) or thrown out: the work itself is not to blame.
    message = _evicted(pod) or _message(reason, status.get("message"))
    return observed_task(ref, AttemptPhase.FAILED, reason="Evicted", message=message)


def _evicted(pod: Mapping[str, Any]) -> str | None:
    """What threw the pod out, for people; None when nothing did."""
    status = _part(pod, "status")
    if reason := str(status.get("reason") or ""):
        return _message(reason, status.get("message"))
    if (condition := _disruption(status)) is not None:
        return _message(str(condition.get("reason", "")), condition.get("message"))
    if _part(pod, "metadata").get("deletionTimestamp"):
        return "its pod was deleted by somebody else"
    return None


def _why_waiting(reason: str) -> str:
    return "ImageError" if reason in IMAGE_REASONS else "StartError" if reason in START_REASONS else ""


def _wants_root(waiting: Status) -> bool:
    message = str(waiting.get("message") or "")
    return waiting.get("reason") == _CONFIG_ERROR and any(words in message for words in _ROOT_REFUSED)


def _why_not_started(waiting: Status) -> str:
    """The cause of the failure is at the end of the message; the name of the pod in it is left out."""
    reason, sentence = str(waiting.get("reason", "")), str(waiting.get("message") or "")
    if _wants_root(waiting):
        return _message(reason, sentence.partition(" (pod: ")[0], keep="end") + _ROOT_HINT
    return _message(reason, sentence, keep="end")


def _unschedulable(status: Status) -> Status | None:
    return _condition(status, "PodScheduled", "False")


def _disruption(status: Status) -> Status | None:
    return _condition(status, "DisruptionTarget", "True")


def _is_lost(status: Status) -> bool:
    """Whether the node does not answer: its containers may still run."""
    if status.get("phase") == "Unknown" or status.get("reason") in _LOST_NODE:
        return True
    ready = _condition(status, "Ready", "False", "Unknown")
    return ready is not None and ready.get("reason") in _LOST_NODE


def _condition(status: Status, kind: str, *values: str) -> Status | None:
    conditions: Iterable[Status] = status.get("conditions") or ()
    matching = (each for each in conditions if each.get("type") == kind and each.get("status") in values)
    return next(matching, None)


def _message(reason: str, explanation: object, keep: Literal["start", "end"] = "start") -> str:
    """The reason stays whole, a long explanation is cut."""
    text = str(explanation or "").strip()
    front = f"{reason}: " if reason and text else reason
    return front + texts.cut(text, max(texts.MESSAGE_CHARACTERS - len(front), 1), keep=keep)


def _time(text: object) -> str:
    """Empty for an unknown time, for which a kubelet writes 1970-01-01T00:00:00Z."""
    try:
        moment = times.parse(str(text), "time") if text else _EPOCH
    except Invalid:
        return ""
    return times.show(moment) if moment > _EPOCH else ""


def _annotations(pod: Mapping[str, Any]) -> Mapping[str, str]:
    return _part(pod, "metadata").get("annotations") or {}


def _part(item: Mapping[str, Any], part: str) -> Mapping[str, Any]:
    value = item.get(part)
    return value if isinstance(value, Mapping) else {}
