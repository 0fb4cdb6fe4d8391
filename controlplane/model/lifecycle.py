"""The phases of orders and targets, and which phase may follow which.

The phase of an order follows from its tasks (`controller_manager/folding`), the phase of a target from its session and
its config (`controller_manager/target_phase`). Before a controller writes a new phase, `follow` asks the table. A phase
that the table refuses is not written: the runner isolates the order or the target. `verify` judges history by the same
tables, and the pictures in the tour are drawn from the tables. The states of tasks are in `model/task`.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import TypeVar

from controlplane.model.errors import IllegalTransition

P = TypeVar("P", bound=str)
# The other phases that may follow a phase.
Phases = Mapping[str, frozenset[str]]


class OrderPhase(StrEnum):
    PENDING = "Pending"
    RUNNING = "Running"
    PAUSED = "Paused"
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"
    CANCELLED = "Cancelled"


class TargetPhase(StrEnum):
    PROVISIONING = "Provisioning"
    READY = "Ready"
    SUSPECT = "Suspect"
    FAILED = "Failed"
    DRAINING = "Draining"
    DRAINED = "Drained"
    CORDONED = "Cordoned"
    GONE = "Gone"


FINAL_ORDER = frozenset({OrderPhase.SUCCEEDED, OrderPhase.FAILED, OrderPhase.CANCELLED})
ORDER: Phases = {
    OrderPhase.PENDING: FINAL_ORDER | {OrderPhase.RUNNING, OrderPhase.PAUSED},
    OrderPhase.RUNNING: FINAL_ORDER | {OrderPhase.PAUSED},
    OrderPhase.PAUSED: FINAL_ORDER | {OrderPhase.PENDING, OrderPhase.RUNNING},
    OrderPhase.SUCCEEDED: frozenset(),
    OrderPhase.FAILED: frozenset(),
    OrderPhase.CANCELLED: frozenset(),
}

_WISHED = frozenset({TargetPhase.CORDONED, TargetPhase.DRAINING, TargetPhase.GONE})
TARGET: Phases = {
    TargetPhase.PROVISIONING: _WISHED | {TargetPhase.READY, TargetPhase.SUSPECT},
    TargetPhase.READY: _WISHED | {TargetPhase.SUSPECT},
    TargetPhase.SUSPECT: _WISHED | {TargetPhase.READY, TargetPhase.FAILED},
    TargetPhase.FAILED: _WISHED | {TargetPhase.READY},
    TargetPhase.CORDONED: _WISHED - {TargetPhase.CORDONED} | {TargetPhase.READY, TargetPhase.SUSPECT},
    TargetPhase.DRAINING: _WISHED - {TargetPhase.DRAINING}
    | {TargetPhase.READY, TargetPhase.SUSPECT, TargetPhase.DRAINED},
    TargetPhase.DRAINED: _WISHED | {TargetPhase.READY, TargetPhase.SUSPECT},
    TargetPhase.GONE: frozenset(),
}


def may_follow(table: Phases, before: str, after: str) -> bool:
    """A phase of the table may also stay as it is."""
    return before in table and (after == before or after in table[before])


def follow(table: Phases, before: str, after: P) -> P:
    """The phase `after`, if the table allows, else IllegalTransition. An unknown phase on record is mended by any."""
    if before in table and not may_follow(table, before, after):
        raise IllegalTransition(f"phase {after} cannot follow {before}")
    return after
