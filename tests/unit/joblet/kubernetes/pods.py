"""Fulfilments and pods for the tests of the kubernetes driver's pure part."""

from __future__ import annotations

from typing import Any

from controlplane.joblet.drivers.kubernetes.pod import PodDefaults, pod_of
from controlplane.model.fulfilment import Fulfilment, TaskRef, TaskSpec

IDENTITY = "01KXAMPLE00000000000000001"
PLACE = PodDefaults(namespace="work")


def a_ref(index: int = 0, attempt: int = 1) -> TaskRef:
    return TaskRef(job="render", index=index, attempt=attempt)


def a_fulfilment(count: int = 1, target: str = "eu-1", **spec: Any) -> Fulfilment:
    """`count` tasks of one job; `spec` says what the job is."""
    said = {"image": "registry.example/render:1", "command": ("render", "$(INDEX)"), "requests": {"cpu": 2}, **spec}
    return Fulfilment(
        id=IDENTITY,
        epoch=7,
        cycle=3,
        order="01KXAMPLE0000000000000000A",
        target=target,
        tasks=tuple(a_ref(index, attempt=index + 1) for index in range(count)),
        jobs={"render": TaskSpec(**said)},
        owner="anna",
    )


def a_pod(*states: dict[str, Any], **status: Any) -> dict[str, Any]:
    """As the API shows it, with these states of its containers in their order."""
    pod = pod_of(a_fulfilment(max(1, len(states))), PLACE)
    statuses = [
        {"name": f"task-{position}", "state": state, "restartCount": state.pop("restarts", 0)}
        for position, state in enumerate(states)
    ]
    pod["status"] = {"phase": "Running", **({"containerStatuses": statuses} if states else {}), **status}
    return pod


def running(at: str = "2026-01-01T00:00:00Z") -> dict[str, Any]:
    return {"running": {"startedAt": at}}


def waiting(reason: str, message: str = "") -> dict[str, Any]:
    return {"waiting": {"reason": reason, "message": message}}


def ended(code: int, reason: str = "", message: str = "", restarts: int = 0) -> dict[str, Any]:
    at = {"startedAt": "2026-01-01T00:00:00Z", "finishedAt": "2026-01-01T00:00:05Z"}
    what = {"exitCode": code, "reason": reason or ("Completed" if code == 0 else "Error"), "message": message}
    return {"terminated": {**what, **at}, "restarts": restarts}


def condition(kind: str, status: str, reason: str = "", message: str = "") -> dict[str, str]:
    return {"type": kind, "status": status, "reason": reason, "message": message}
