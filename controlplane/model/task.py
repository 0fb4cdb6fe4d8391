"""A task: its states, the events that change them, and the table of both that the ledgers run on.

States are kept in memory only, a byte a task (`cache/job_ledger`), and follow from records in etcd. Records arrive in
any order and more than once. So every open task takes notice of placements and decisions, and an event without a row
for the state of the task is ignored: the task keeps its state. A task that is over has no row at all.

Users see the phase of a task, a projection of the state: a Placed task with a running report is Running. Joblets report
the phases of attempts, which only go forward.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum, StrEnum


class TaskState(IntEnum):
    NEW = 0
    PLACED = 1
    WAITING_RETRY = 2
    SUCCEEDED = 3
    FAILED = 4
    CANCELLED = 5
    HELD = 6  # until a user releases the task
    ORPHANED = 7  # the placement is gone, and the record of the attempt's end is missing
    CALLED_OFF = 8  # cancelled by a user while the task waited
    EXPIRED = 9  # failed by the deadline while the task waited


class TaskEvent(StrEnum):
    """The events DONE to HOLD are the decisions about an ended attempt, and the words on record (`EndedTask`)."""

    PLACE = "place"
    VANISH = "vanish"  # the placement is gone
    DONE = "done"
    IGNORE = "ignore"
    FAIL = "fail"
    FAIL_ORDER = "fail_order"
    CANCEL = "cancel"
    RETRY = "retry"
    MOVE = "move"
    HOLD = "hold"
    RELEASE = "release"
    SEND = "send"  # a user names the target of the next attempt
    CALL_OFF = "call_off"
    EXPIRE = "expire"


class TaskPhase(StrEnum):
    PENDING = "Pending"
    PLACED = "Placed"
    RUNNING = "Running"
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"
    CANCELLED = "Cancelled"
    HELD = "Held"


class AttemptPhase(StrEnum):
    """The phases that joblets report, of attempts and of whole fulfilments."""

    STARTING = "Starting"
    RUNNING = "Running"
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"
    CANCELLED = "Cancelled"


OVER = frozenset({TaskState.SUCCEEDED, TaskState.FAILED, TaskState.CANCELLED})
OPEN = frozenset(TaskState) - OVER
WAITING = frozenset({TaskState.NEW, TaskState.WAITING_RETRY, TaskState.HELD})

# The states in which a task takes notice of an event, and the state after the event.
_ROWS: Mapping[TaskEvent, tuple[frozenset[TaskState], TaskState]] = {
    TaskEvent.PLACE: (OPEN, TaskState.PLACED),
    TaskEvent.VANISH: (frozenset({TaskState.PLACED}), TaskState.ORPHANED),
    TaskEvent.DONE: (OPEN, TaskState.SUCCEEDED),
    TaskEvent.IGNORE: (OPEN, TaskState.SUCCEEDED),
    TaskEvent.FAIL: (OPEN, TaskState.FAILED),
    TaskEvent.FAIL_ORDER: (OPEN, TaskState.FAILED),
    TaskEvent.CANCEL: (OPEN, TaskState.CANCELLED),
    TaskEvent.RETRY: (OPEN, TaskState.WAITING_RETRY),
    TaskEvent.MOVE: (OPEN, TaskState.WAITING_RETRY),
    TaskEvent.HOLD: (OPEN, TaskState.HELD),
    TaskEvent.RELEASE: (frozenset({TaskState.HELD}), TaskState.WAITING_RETRY),
    TaskEvent.SEND: (frozenset({TaskState.NEW, TaskState.WAITING_RETRY}), TaskState.WAITING_RETRY),
    TaskEvent.CALL_OFF: (WAITING, TaskState.CALLED_OFF),
    TaskEvent.EXPIRE: (WAITING, TaskState.EXPIRED),
}
TABLE: Mapping[tuple[TaskState, TaskEvent], TaskState] = {
    (before, event): after for event, (befores, after) in _ROWS.items() for before in sorted(befores)
}
# The table as bytes: by event and state, the next state. No event leads to NEW, which is 0: 0 means no row.
NEXT: Mapping[TaskEvent, bytes] = {
    event: bytes(TABLE.get((state, event), TaskState.NEW) for state in TaskState) for event in TaskEvent
}

PHASE_OF: Mapping[int, TaskPhase] = {
    TaskState.NEW: TaskPhase.PENDING,
    TaskState.PLACED: TaskPhase.PLACED,
    TaskState.WAITING_RETRY: TaskPhase.PENDING,
    TaskState.SUCCEEDED: TaskPhase.SUCCEEDED,
    TaskState.FAILED: TaskPhase.FAILED,
    TaskState.CANCELLED: TaskPhase.CANCELLED,
    TaskState.HELD: TaskPhase.HELD,
    TaskState.ORPHANED: TaskPhase.PENDING,
    TaskState.CALLED_OFF: TaskPhase.CANCELLED,
    TaskState.EXPIRED: TaskPhase.FAILED,
}
NOT_STARTED = frozenset({TaskPhase.PENDING, TaskPhase.HELD})
FINAL_TASK = frozenset({TaskPhase.SUCCEEDED, TaskPhase.FAILED, TaskPhase.CANCELLED})

ALIVE = frozenset({AttemptPhase.STARTING, AttemptPhase.RUNNING})
REPORTED = frozenset(AttemptPhase)
ENDED = REPORTED - ALIVE

# Every open task takes notice of a decision.
_DECISIONS: Mapping[str, TaskEvent] = {
    event: event for event, (befores, _) in _ROWS.items() if befores is OPEN and event is not TaskEvent.PLACE
}


def decision_of(word: str) -> TaskEvent:
    """The decision on record; an unknown word counts as fail."""
    return _DECISIONS.get(word, TaskEvent.FAIL)


def phase_after(decision: str) -> TaskPhase:
    """The phase of a task whose last attempt ended with the decision on record."""
    return PHASE_OF[TABLE[TaskState.PLACED, decision_of(decision)]]


def may_report(before: str, after: str) -> bool:
    """Whether the phase of a report may follow the phase of the report before: an end stays the same end."""
    return after == before if before in ENDED else (before, after) != (AttemptPhase.RUNNING, AttemptPhase.STARTING)
