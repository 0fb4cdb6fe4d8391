"""The tasks of a job of an order, a byte each at most; more is kept only of tasks that lost an attempt.

Every change of a state is a row of the table in `model/task`. A job ledger knows no orders: `ledger` reports what
happened to tasks, `wishes` what users want of them.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections import Counter
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any, TypeVar

from controlplane.cache.placement_hint import ANYWHERE, PlacementHint
from controlplane.cache.task_states import States, untouched, where, writable
from controlplane.model import failure, times
from controlplane.model.fulfilment import EndedTask
from controlplane.model.task import NEXT, TaskEvent, TaskState

# A member of an enum is read slowly, so that the members of the hot paths have names of their own.
_NEW, _PLACED, _WAITING_RETRY = int(TaskState.NEW), int(TaskState.PLACED), int(TaskState.WAITING_RETRY)
_PLACE, _FIRST_PLACED = TaskEvent.PLACE, NEXT[TaskEvent.PLACE][TaskState.NEW]
_NEVER_PLACED = frozenset({TaskState.NEW, TaskState.CALLED_OFF, TaskState.EXPIRED})
T = TypeVar("T")

_NOTHING: Mapping[int, Any] = MappingProxyType({})
# The policy of retries on record without a policy.
_FIRST_DEFAULT = "default[0]"


def _with(before: Mapping[int, T], index: int, value: T) -> Mapping[int, T]:
    """The mapping with this entry: changed in place, unless it is the shared empty mapping."""
    if not isinstance(before, dict):
        return {index: value}
    before[index] = value
    return before


def _without(before: Mapping[int, T], index: int) -> Mapping[int, T]:
    if isinstance(before, dict):
        before.pop(index, None)
    return before or _NOTHING


class JobLedger:
    """The tasks of a job of an order."""

    __slots__ = (
        "attempts", "count", "counts", "cursor", "held_at", "hints", "moments", "not_before", "retries", "state",
    )  # fmt: skip

    def __init__(self, count: int) -> None:
        self.count = count
        self.state: States = untouched(count)
        # The number of tasks in each state; NEW is the first.
        self.counts = [count, 0, 0, 0, 0, 0, 0, 0, 0, 0]
        self.cursor = 0
        # Only differences from "first attempt, may start now" are kept, and most jobs have none.
        self.attempts: Mapping[int, int] = _NOTHING
        self.not_before: Mapping[int, str] = _NOTHING
        # The values of not_before, sorted.
        self.moments: list[str] | None = None
        # By task: the placement hint, the revision since which the task is held, and by attempt, the policy and the
        # reason of the retry.
        self.hints: Mapping[int, PlacementHint] = _NOTHING
        self.held_at: Mapping[int, int] = _NOTHING
        self.retries: Mapping[int, dict[int, tuple[str, str]]] = _NOTHING

    def move(self, index: int, event: TaskEvent) -> int:
        """Changes the task's state by the table; returns the new state, or 0 when the event is ignored."""
        if not 0 <= index < self.count:
            return 0
        states = self.state
        before = states[index]
        after = NEXT[event][before]
        if after:
            self.counts[before] -= 1
            self.counts[after] += 1
            if type(states) is bytes:
                states = self.state = writable(states)
            states[index] = after  # type: ignore[index]
        return after

    def attempt(self, index: int) -> int:
        """The last attempt that was placed; 0 before the first."""
        return self.attempts.get(index, 0 if self.state[index] in _NEVER_PLACED else 1)

    def saw(self, index: int, attempt: int) -> bool:
        """Records the attempt; False when a later attempt is known already."""
        if not 0 <= index < self.count or attempt < self.attempt(index):
            return False
        if attempt > 1 or index in self.attempts:
            self.attempts = _with(self.attempts, index, attempt)
        return True

    def place(self, index: int, attempt: int) -> None:
        """The attempt is under way, unless a later attempt is known or the task is over."""
        states = self.state
        if attempt == 1 and 0 <= index < self.count and states[index] == _NEW:
            # Nearly all placements are the first of their task, whose row is looked up once.
            self.counts[_NEW] -= 1
            self.counts[_FIRST_PLACED] += 1
            if type(states) is bytes:
                states = self.state = writable(states)
            states[index] = _FIRST_PLACED  # type: ignore[index]
        elif self.saw(index, attempt) and self.move(index, _PLACE):
            self.hold_until(index, None)

    def note_retry(self, task: EndedTask) -> None:
        """Ends may arrive in any order, and more than once."""
        retries = self.retries.get(task.index, {})
        retries[task.attempt] = (task.policy or _FIRST_DEFAULT, failure.reason_of(task.reason))
        self.retries = _with(self.retries, task.index, retries)

    def retried(self, index: int) -> Counter[tuple[str, str]]:
        """How often the task was tried again, by policy and reason."""
        return Counter(self.retries.get(index, {}).values())

    def hint(self, index: int) -> PlacementHint:
        return self.hints.get(index, ANYWHERE)

    def set_hint(self, index: int, hint: PlacementHint) -> None:
        """Where the task's next attempt goes, and where not."""
        if hint != ANYWHERE:
            self.hints = _with(self.hints, index, hint)
        elif index in self.hints:
            self.hints = _without(self.hints, index)

    def note_hold(self, index: int, revision: int) -> None:
        self.held_at = _with(self.held_at, index, revision)

    def forget(self, index: int) -> None:
        """The task is over: the fate of its attempts does not matter any more."""
        if index in self.hints:
            self.hints = _without(self.hints, index)
        if index in self.held_at:
            self.held_at = _without(self.held_at, index)
        if index in self.retries:
            self.retries = _without(self.retries, index)

    def waiting(self) -> int:
        """Tasks that are neither placed nor over, held tasks included."""
        return self.counts[_NEW] + self.counts[_WAITING_RETRY] + self.counts[TaskState.HELD]

    def end_waiting(self, event: TaskEvent, index: int | None = None) -> None:
        """The task, or all tasks, as far as they wait, are over without another attempt: CALL_OFF or EXPIRE."""
        if index is not None:
            if self.move_waiting(index, event):
                self.hold_until(index, None)
            return
        for state in (TaskState.WAITING_RETRY, TaskState.HELD):
            for at in self.tasks_in(state):
                self.attempts = _with(self.attempts, at, self.attempt(at))
        following = bytes(after or at for at, after in enumerate(NEXT[event]))
        self.state = self.state.translate(following.ljust(256))
        before, self.counts = self.counts, [0] * len(TaskState)
        for after, count in zip(following, before, strict=True):
            self.counts[after] += count
        if self.moments:
            self.moments, self.not_before = None, _NOTHING

    def move_waiting(self, index: int, event: TaskEvent) -> int:
        """Moves a task that waits and keeps the number of its last attempt, which the state alone does not tell."""
        attempt = self.attempt(index) if 0 <= index < self.count else 0
        after = self.move(index, event)
        if after:
            self.attempts = _with(self.attempts, index, attempt)
        return after

    def tasks_in(self, state: TaskState) -> Iterator[int]:
        return where(self.state, state) if self.counts[state] else iter(())

    def hold_until(self, index: int, moment: str | None) -> None:
        """The task's next attempt may not begin before the moment; None: at any time."""
        before = self.not_before.get(index)
        if before is not None and self.moments is not None:
            del self.moments[bisect_left(self.moments, before)]
        if moment and times.is_stamp(moment):
            self.not_before = _with(self.not_before, index, moment)
            self.moments = self.moments if self.moments is not None else []
            insort(self.moments, moment)
        elif before is not None:
            self.not_before = _without(self.not_before, index)

    def carries(self, index: int, attempt: int) -> bool:
        """Whether exactly this attempt is placed."""
        return 0 <= index < self.count and self.state[index] == _PLACED and self.attempt(index) == attempt

    def pending(self) -> int:
        return self.counts[_NEW] + self.counts[_WAITING_RETRY]

    def done(self) -> bool:
        return self.counts[TaskState.SUCCEEDED] == self.count

    def parts(self, now: str | None = None) -> list[tuple[PlacementHint, int]]:
        """The number of tasks that may be placed now (without a time: that wait), by placement hint; most have none."""
        total = self.pending() if now is None else self.ready(now)
        if not self.hints:
            return [(ANYWHERE, total)]
        hinted = Counter(
            hint
            for index, hint in self.hints.items()
            if self.state[index] == _WAITING_RETRY and (now is None or self.not_before.get(index, "") <= now)
        )
        return [(ANYWHERE, total - hinted.total()), *sorted(hinted.items())]

    def take(self, most: int, now: str, hint: PlacementHint = ANYWHERE) -> list[tuple[int, int]]:
        """Up to `most` tasks that may be placed now as (index, next attempt): retries first, then by index."""
        taken: list[tuple[int, int]] = []
        if self.counts[_WAITING_RETRY]:
            for index in where(self.state, _WAITING_RETRY):
                if len(taken) == most:
                    return taken
                if self.not_before.get(index, "") <= now and (not self.hints or self.hint(index) == hint):
                    taken.append((index, self.attempt(index) + 1))
        if self.counts[_NEW] and hint is ANYWHERE:
            first = self.state.find(_NEW, self.cursor)
            self.cursor = first if first >= 0 else self.cursor
            for index in where(self.state, _NEW, self.cursor):
                if len(taken) == most:
                    break
                taken.append((index, 1))
        return taken

    def ready(self, now: str) -> int:
        """The number of tasks that may be placed now."""
        return self.pending() - (len(self.moments) - bisect_right(self.moments, now) if self.moments else 0)

    def next_time(self, now: str) -> str | None:
        """The time at which the next backing-off task may be placed."""
        following = bisect_right(self.moments, now) if self.moments else 0
        return self.moments[following] if self.moments and following < len(self.moments) else None
