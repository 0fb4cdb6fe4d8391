"""What a pod's status means for the tasks that its containers are. Pure.

An end is said only when the cluster itself says that the container has ended: one on a node that does not answer, one
that is being deleted, and one whose pod has failed already, may still run. What will never start is told by `hopeless`:
the driver deletes such a pod, and only when it is gone has the attempt ended.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any, Literal

import msgspec

from controlplane.joblet.drivers.kubernetes import pod as pods
from controlplane.joblet.drivers.kubernetes.results import progress, said
from controlplane.joblet.reconcile import observed_task
from controlplane.model import texts, times
from controlplane.model.errors import Invalid
from controlplane.model.fulfilment import ObservedTask, TaskRef

Status = Mapping[str, Any]

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

STOPPING = "controlplane/stopping"
UNSCHEDULABLE, NODE_LOST, OOM = "Unschedulable", "NodeLost", "OOMKilled"
# Why a container waits, in the words of failure policies: the image, or how it is to be started.
IMAGE_REASONS = frozenset(
    {"ErrImagePull", "ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull", "ImageInspectError",
     "RegistryUnavailable", "SignatureValidationFailed"}
)  # fmt: skip
START_REASONS = frozenset(
    {"CreateContainerConfigError", "CreateContainerError", "RunContainerError", "PreCreateHookError",
     "PreStartHookError", "PostStartHookError", "CrashLoopBackOff", "CreatePodSandboxError"}
)  # fmt: skip
# These never get better by waiting. An image that would run as root does not either: of the causes of its reason, of
# which others may pass (a Secret that is missing), the kubelet's sentence tells which it is.
FATAL = frozenset({"InvalidImageName", "ErrImageNeverPull"})
_CONFIG_ERROR = "CreateContainerConfigError"
_ROOT_REFUSED = ("runAsNonRoot", "non-root policy")
_ROOT_HINT = "; images that run as root need --security baseline of the joblet (of a hosted target: security: baseline)"
_CANNOT_RUN = frozenset({"ContainerCannotRun", "StartError"})
_UNKNOWN_END = frozenset({"ContainerStatusUnknown"})
_LOST_NODE = frozenset({NODE_LOST, "NodeStatusUnknown"})
_TIMED_OUT = "DeadlineExceeded"


class Stopping(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The annotation `controlplane/stopping`: why the driver deletes the pod, and what ends thereby end as."""

    phase: str = "Cancelled"
    reason: str = ""
    message: str = ""


def observe(pod: Mapping[str, Any]) -> dict[TaskRef, ObservedTask]:
    """The newest of each task, by its container. Of tasks nobody can tell from the pod there is none."""
    status = _part(pod, "status")
    states = {found.get("name"): found for found in status.get("containerStatuses") or ()}
    refs = pods.refs_of(pod)
    found: dict[TaskRef, ObservedTask] = {}
    for position, ref in enumerate(refs):
        name = pods.container_of(position)
        state = _part(states.get(name, {}), "state")
        if ended := state.get("terminated"):
            found[ref] = _ended(pod, ref, ended, int(states[name].get("restartCount") or 0))
        elif "running" in state:
            found[ref] = _running(pod, ref, name, state["running"] or {}, alone=len(refs) == 1)
        elif status.get("phase") in ("Succeeded", "Failed"):
            found[ref] = _over(pod, ref)
        else:
            found[ref] = _waiting(pod, ref, _part(state, "waiting"))
    return found


def stopping_of(pod: Mapping[str, Any]) -> Stopping | None:
    """What the driver noted when it began to stop the pod."""
    try:
        return msgspec.json.decode(_annotations(pod)[STOPPING], type=Stopping)
    except (KeyError, msgspec.DecodeError):
        return None


def hopeless(pod: Mapping[str, Any], *, patience_over: bool) -> Stopping | None:
    """Why the pod should go although nobody asked for it: nothing of it runs, and what waits cannot start.

    Most of these reasons may pass, a registry may come back: they count when the driver's patience is over.
    """
    status = _part(pod, "status")
    if status.get("phase") in ("Succeeded", "Failed"):
        return None
    states = [_part(found, "state") for found in status.get("containerStatuses") or ()]
    if any("running" in state for state in states):
        return None
    for state in states:
        waiting = _part(state, "waiting")
        reason, failure = str(waiting.get("reason", "")), _why_waiting(str(waiting.get("reason", "")))
        if failure and (patience_over or reason in FATAL or _wants_root(waiting)):
            return Stopping(phase="Failed", reason=failure, message=_why_not_started(waiting))
    if patience_over and (condition := _unschedulable(status)) is not None:
        return Stopping(phase="Failed", reason="Evicted", message=_message(UNSCHEDULABLE, condition.get("message")))
    return None


def vanished(ref: TaskRef, last: Mapping[str, Any] | None) -> ObservedTask:
    """The pod is gone from the API. `last` is how it was seen before: a stop that was under way is thereby done."""
    stopping = stopping_of(last) if last is not None else None
    if stopping is not None:
        return observed_task(ref, stopping.phase, reason=stopping.reason, message=stopping.message)
    message = "its pod was deleted by somebody else" if last is not None else "there is no pod of it any more"
    return observed_task(ref, "Failed", reason="Lost", message=message)


def _waiting(pod: Mapping[str, Any], ref: TaskRef, waiting: Status) -> ObservedTask:
    status = _part(pod, "status")
    reason = str(waiting.get("reason", ""))
    if failure := _why_waiting(reason):
        return observed_task(ref, "Starting", reason=failure, message=_why_not_started(waiting))
    if (condition := _unschedulable(status)) is not None:
        message = _message(UNSCHEDULABLE, condition.get("message"))
        return observed_task(ref, "Starting", reason=UNSCHEDULABLE, message=message)
    if _is_lost(status):
        return observed_task(ref, "Starting", reason=NODE_LOST, message=_message(NODE_LOST, status.get("message")))
    return observed_task(ref, "Starting")


def _running(pod: Mapping[str, Any], ref: TaskRef, name: str, running: Status, *, alone: bool) -> ObservedTask:
    status = _part(pod, "status")
    reason = NODE_LOST if _is_lost(status) else str(status.get("reason") or "")
    message = _message(reason, status.get("message")) if reason else ""
    seen = observed_task(ref, "Running", reason=reason, message=message)
    percent = progress(_annotations(pod), name, alone=alone)
    return msgspec.structs.replace(seen, started=_time(running.get("startedAt")), percent=percent)


def _ended(pod: Mapping[str, Any], ref: TaskRef, ended: Status, restarts: int) -> ObservedTask:
    """A container that succeeded has, whatever became of its pod."""
    told = said(str(ended.get("message") or ""))
    code = ended.get("exitCode")
    phase, reason, message = "Succeeded", "", told.message
    if code != 0 or ended.get("reason") in _UNKNOWN_END:
        phase, reason, message = _failure(pod, ended, told.message)
    if restarts > 0:
        message = _message(f"the cluster restarted it {restarts} times", message)
    return msgspec.structs.replace(
        observed_task(ref, phase, reason=reason, message=message),
        exit_code=code if isinstance(code, int) and reason not in ("Lost", "StartError") else None,
        percent=told.percent,
        artefacts=told.artefacts,
        started=_time(ended.get("startedAt")),
        finished=_time(ended.get("finishedAt")),
    )


def _failure(pod: Mapping[str, Any], ended: Status, message: str) -> tuple[str, str, str]:
    """Why a container ended that did not succeed: what happened to the pod goes before what it looks like."""
    stopping = stopping_of(pod)
    if stopping is not None:
        return stopping.phase, stopping.reason, stopping.message or message
    status = _part(pod, "status")
    why = str(ended.get("reason") or "")
    if status.get("reason") == _TIMED_OUT:
        return "Failed", "TimedOut", _message("", status.get("message"))
    if why == OOM:
        return "Failed", OOM, message or "it needed more memory than it requested"
    if why in _CANNOT_RUN:
        return "Failed", "StartError", message or why
    if why in _UNKNOWN_END:
        return "Failed", "Lost", _message(why, message)
    if (evicted := _evicted(pod)) is not None:
        return "Failed", "Evicted", evicted
    return "Failed", "Failed", message


def _over(pod: Mapping[str, Any], ref: TaskRef) -> ObservedTask:
    """The pod has ended, and nothing is said about this container: it never ran, or nobody knows how it ended."""
    status = _part(pod, "status")
    stopping = stopping_of(pod)
    reason = str(status.get("reason") or "")
    if stopping is not None:
        return observed_task(ref, stopping.phase, reason=stopping.reason, message=stopping.message)
    if reason == _TIMED_OUT:
        return observed_task(ref, "Failed", reason="TimedOut", message=_message("", status.get("message")))
    if reason in _LOST_NODE or status.get("phase") == "Succeeded" or not (reason or _disruption(status)):
        return observed_task(ref, "Failed", reason="Lost", message=_message(reason, status.get("message")))
    # Refused by the kubelet (OutOfcpu, NodeAffinity, ...) or thrown out: the work itself is not to blame.
    message = _evicted(pod) or _message(reason, status.get("message"))
    return observed_task(ref, "Failed", reason="Evicted", message=message)


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
    said_so = str(waiting.get("message") or "")
    return waiting.get("reason") == _CONFIG_ERROR and any(words in said_so for words in _ROOT_REFUSED)


def _why_not_started(waiting: Status) -> str:
    """The cause of such a failure is at the end of its sentence; which pod it is about needs no telling."""
    reason, sentence = str(waiting.get("reason", "")), str(waiting.get("message") or "")
    if _wants_root(waiting):
        return _message(reason, sentence.partition(" (pod: ")[0], keep="end") + _ROOT_HINT
    return _message(reason, sentence, keep="end")


def _unschedulable(status: Status) -> Status | None:
    return _condition(status, "PodScheduled", "False")


def _disruption(status: Status) -> Status | None:
    return _condition(status, "DisruptionTarget", "True")


def _is_lost(status: Status) -> bool:
    """Nobody hears of the node: what is there may still run."""
    if status.get("phase") == "Unknown" or status.get("reason") in _LOST_NODE:
        return True
    ready = _condition(status, "Ready", "False", "Unknown")
    return ready is not None and ready.get("reason") in _LOST_NODE


def _condition(status: Status, kind: str, *values: str) -> Status | None:
    found: Iterable[Status] = status.get("conditions") or ()
    return next((one for one in found if one.get("type") == kind and one.get("status") in values), None)


def _message(what: str, why: object, keep: Literal["start", "end"] = "start") -> str:
    """`what` stays whole, `why` is cut."""
    text = str(why or "").strip()
    front = f"{what}: " if what and text else what
    return front + texts.cut(text, max(texts.MESSAGE_CHARACTERS - len(front), 1), keep=keep)


def _time(text: object) -> str:
    """Empty where it is not known, for which a kubelet writes 1970-01-01T00:00:00Z."""
    try:
        moment = times.parse(str(text), "time") if text else _EPOCH
    except Invalid:
        return ""
    return times.show(moment) if moment > _EPOCH else ""


def _annotations(pod: Mapping[str, Any]) -> Mapping[str, str]:
    return _part(pod, "metadata").get("annotations") or {}


def _part(item: Mapping[str, Any], part: str) -> Mapping[str, Any]:
    found = item.get(part)
    return found if isinstance(found, Mapping) else {}
