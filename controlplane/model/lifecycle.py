"""The phases that tasks, orders and targets go through, as literal tables.

`move` is the only way a phase follows from an event. What is not in a table is illegal, and a final phase has no
way out. `verify` reads the same tables to judge history, and the pictures in the tour are drawn from them.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import TypeVar

from controlplane.model.errors import IllegalTransition

P = TypeVar("P", bound=StrEnum)
E = TypeVar("E", bound=StrEnum)


class TaskPhase(StrEnum):
    PENDING = "Pending"
    PLACED = "Placed"
    RUNNING = "Running"
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"
    CANCELLED = "Cancelled"
    HELD = "Held"


class TaskEvent(StrEnum):
    PLACE = "place"
    RUN = "run"
    SUCCEED = "succeed"
    FAIL = "fail"
    RETRY = "retry"
    CANCEL = "cancel"
    HOLD = "hold"
    RELEASE = "release"


class OrderPhase(StrEnum):
    PENDING = "Pending"
    RUNNING = "Running"
    PAUSED = "Paused"
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"
    CANCELLED = "Cancelled"


class OrderEvent(StrEnum):
    START = "start"
    PAUSE = "pause"
    RESUME = "resume"
    SUCCEED = "succeed"
    FAIL = "fail"
    CANCEL = "cancel"


class TargetPhase(StrEnum):
    PROVISIONING = "Provisioning"
    READY = "Ready"
    SUSPECT = "Suspect"
    FAILED = "Failed"
    DRAINING = "Draining"
    DRAINED = "Drained"
    CORDONED = "Cordoned"
    GONE = "Gone"


class TargetEvent(StrEnum):
    JOIN = "join"
    SILENCE = "silence"
    GIVE_UP = "give-up"
    CORDON = "cordon"
    UNCORDON = "uncordon"
    DRAIN = "drain"
    EMPTY = "empty"
    REMOVE = "remove"


TASK: Mapping[tuple[TaskPhase, TaskEvent], TaskPhase] = {
    (TaskPhase.PENDING, TaskEvent.PLACE): TaskPhase.PLACED,
    (TaskPhase.PENDING, TaskEvent.CANCEL): TaskPhase.CANCELLED,
    (TaskPhase.PENDING, TaskEvent.FAIL): TaskPhase.FAILED,
    (TaskPhase.PENDING, TaskEvent.HOLD): TaskPhase.HELD,
    (TaskPhase.PLACED, TaskEvent.RUN): TaskPhase.RUNNING,
    (TaskPhase.PLACED, TaskEvent.SUCCEED): TaskPhase.SUCCEEDED,
    (TaskPhase.PLACED, TaskEvent.FAIL): TaskPhase.FAILED,
    (TaskPhase.PLACED, TaskEvent.RETRY): TaskPhase.PENDING,
    (TaskPhase.PLACED, TaskEvent.CANCEL): TaskPhase.CANCELLED,
    (TaskPhase.PLACED, TaskEvent.HOLD): TaskPhase.HELD,
    (TaskPhase.RUNNING, TaskEvent.SUCCEED): TaskPhase.SUCCEEDED,
    (TaskPhase.RUNNING, TaskEvent.FAIL): TaskPhase.FAILED,
    (TaskPhase.RUNNING, TaskEvent.RETRY): TaskPhase.PENDING,
    (TaskPhase.RUNNING, TaskEvent.CANCEL): TaskPhase.CANCELLED,
    (TaskPhase.RUNNING, TaskEvent.HOLD): TaskPhase.HELD,
    (TaskPhase.HELD, TaskEvent.RELEASE): TaskPhase.PENDING,
    (TaskPhase.HELD, TaskEvent.FAIL): TaskPhase.FAILED,
    (TaskPhase.HELD, TaskEvent.CANCEL): TaskPhase.CANCELLED,
}

ORDER: Mapping[tuple[OrderPhase, OrderEvent], OrderPhase] = {
    (OrderPhase.PENDING, OrderEvent.START): OrderPhase.RUNNING,
    (OrderPhase.PENDING, OrderEvent.PAUSE): OrderPhase.PAUSED,
    (OrderPhase.PENDING, OrderEvent.SUCCEED): OrderPhase.SUCCEEDED,
    (OrderPhase.PENDING, OrderEvent.FAIL): OrderPhase.FAILED,
    (OrderPhase.PENDING, OrderEvent.CANCEL): OrderPhase.CANCELLED,
    (OrderPhase.RUNNING, OrderEvent.PAUSE): OrderPhase.PAUSED,
    (OrderPhase.RUNNING, OrderEvent.SUCCEED): OrderPhase.SUCCEEDED,
    (OrderPhase.RUNNING, OrderEvent.FAIL): OrderPhase.FAILED,
    (OrderPhase.RUNNING, OrderEvent.CANCEL): OrderPhase.CANCELLED,
    (OrderPhase.PAUSED, OrderEvent.RESUME): OrderPhase.PENDING,
    (OrderPhase.PAUSED, OrderEvent.START): OrderPhase.RUNNING,
    (OrderPhase.PAUSED, OrderEvent.SUCCEED): OrderPhase.SUCCEEDED,
    (OrderPhase.PAUSED, OrderEvent.FAIL): OrderPhase.FAILED,
    (OrderPhase.PAUSED, OrderEvent.CANCEL): OrderPhase.CANCELLED,
}

TARGET: Mapping[tuple[TargetPhase, TargetEvent], TargetPhase] = {
    (TargetPhase.PROVISIONING, TargetEvent.JOIN): TargetPhase.READY,
    (TargetPhase.PROVISIONING, TargetEvent.SILENCE): TargetPhase.SUSPECT,
    (TargetPhase.PROVISIONING, TargetEvent.CORDON): TargetPhase.CORDONED,
    (TargetPhase.PROVISIONING, TargetEvent.DRAIN): TargetPhase.DRAINING,
    (TargetPhase.PROVISIONING, TargetEvent.REMOVE): TargetPhase.GONE,
    (TargetPhase.READY, TargetEvent.SILENCE): TargetPhase.SUSPECT,
    (TargetPhase.READY, TargetEvent.CORDON): TargetPhase.CORDONED,
    (TargetPhase.READY, TargetEvent.DRAIN): TargetPhase.DRAINING,
    (TargetPhase.READY, TargetEvent.REMOVE): TargetPhase.GONE,
    (TargetPhase.SUSPECT, TargetEvent.JOIN): TargetPhase.READY,
    (TargetPhase.SUSPECT, TargetEvent.GIVE_UP): TargetPhase.FAILED,
    (TargetPhase.SUSPECT, TargetEvent.CORDON): TargetPhase.CORDONED,
    (TargetPhase.SUSPECT, TargetEvent.DRAIN): TargetPhase.DRAINING,
    (TargetPhase.SUSPECT, TargetEvent.REMOVE): TargetPhase.GONE,
    (TargetPhase.FAILED, TargetEvent.JOIN): TargetPhase.READY,
    (TargetPhase.FAILED, TargetEvent.CORDON): TargetPhase.CORDONED,
    (TargetPhase.FAILED, TargetEvent.DRAIN): TargetPhase.DRAINING,
    (TargetPhase.FAILED, TargetEvent.REMOVE): TargetPhase.GONE,
    (TargetPhase.CORDONED, TargetEvent.UNCORDON): TargetPhase.READY,
    (TargetPhase.CORDONED, TargetEvent.SILENCE): TargetPhase.SUSPECT,
    (TargetPhase.CORDONED, TargetEvent.DRAIN): TargetPhase.DRAINING,
    (TargetPhase.CORDONED, TargetEvent.REMOVE): TargetPhase.GONE,
    (TargetPhase.DRAINING, TargetEvent.EMPTY): TargetPhase.DRAINED,
    (TargetPhase.DRAINING, TargetEvent.CORDON): TargetPhase.CORDONED,
    (TargetPhase.DRAINING, TargetEvent.UNCORDON): TargetPhase.READY,
    (TargetPhase.DRAINING, TargetEvent.SILENCE): TargetPhase.SUSPECT,
    (TargetPhase.DRAINING, TargetEvent.REMOVE): TargetPhase.GONE,
    (TargetPhase.DRAINED, TargetEvent.DRAIN): TargetPhase.DRAINING,
    (TargetPhase.DRAINED, TargetEvent.CORDON): TargetPhase.CORDONED,
    (TargetPhase.DRAINED, TargetEvent.UNCORDON): TargetPhase.READY,
    (TargetPhase.DRAINED, TargetEvent.SILENCE): TargetPhase.SUSPECT,
    (TargetPhase.DRAINED, TargetEvent.REMOVE): TargetPhase.GONE,
}

FINAL_TASK = frozenset({TaskPhase.SUCCEEDED, TaskPhase.FAILED, TaskPhase.CANCELLED})
FINAL_ORDER = frozenset({OrderPhase.SUCCEEDED, OrderPhase.FAILED, OrderPhase.CANCELLED})


def move(table: Mapping[tuple[P, E], P], phase: P, event: E) -> P:
    """The phase after the event, or IllegalTransition."""
    after = table.get((phase, event))
    if after is None:
        raise IllegalTransition(f"{phase} cannot {event}")
    return after


def steps(table: Mapping[tuple[P, E], P]) -> frozenset[tuple[str, str]]:
    """Every allowed change of phase, and staying put, as (before, after)."""
    phases = {phase for phase, _ in table} | set(table.values())
    return frozenset({(p.value, p.value) for p in phases} | {(b.value, a.value) for (b, _), a in table.items()})
