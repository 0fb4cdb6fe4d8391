"""The tasks of a job of an order, a byte each at most; more is kept only of tasks that lost an attempt.

A job ledger knows no orders: `ledger` reports what happened to tasks, `wishes` what users want of them.
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

# CALLED_OFF and EXPIRED end a waiting task without an attempt: cancelled by a wish, failed by the deadline.
FRESH, LIVE, RETRY, SUCCEEDED, FAILED, CANCELLED, HELD, ORPHAN, CALLED_OFF, EXPIRED = range(10)
OVER = frozenset({SUCCEEDED, FAILED, CANCELLED})
_WAITING = (FRESH, RETRY, HELD)
_NEVER_PLACED = frozenset({FRESH, CALLED_OFF, EXPIRED})
T = TypeVar("T")

_NOTHING: Mapping[int, Any] = MappingProxyType({})
_ENDING = {
    state: bytes(state if before in _WAITING else before for before in range(256)) for state in (CALLED_OFF, EXPIRED)
}
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

    def set(self, index: int, state: int) -> None:
        if not 0 <= index < self.count:
            return
        self.counts[self.state[index]] -= 1
        self.counts[state] += 1
        self._write(index, state)

    def _write(self, index: int, state: int) -> None:
        states = self.state
        if type(states) is bytes:
            states = self.state = writable(states)
        states[index] = state  # type: ignore[index]

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
        if attempt == 1 and 0 <= index < self.count and self.state[index] == FRESH:
            self.counts[FRESH] -= 1
            self.counts[LIVE] += 1
            self._write(index, LIVE)
        elif self.saw(index, attempt) and self.state[index] not in OVER:
            self.set(index, LIVE)
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
        return self.counts[FRESH] + self.counts[RETRY] + self.counts[HELD]

    def end_waiting(self, state: int, index: int | None = None) -> None:
        """The task, or all tasks, as far as they wait, are over without another attempt."""
        for place in (RETRY, HELD):
            for at in where(self.state, place) if index is None and self.counts[place] else ():
                self._remember_attempt(at)
        if index is None:
            ended = sum(self.counts[place] for place in _WAITING)
            self.state = self.state.translate(_ENDING[state])
            for place in _WAITING:
                self.counts[place] = 0
            self.counts[state] += ended
        elif 0 <= index < self.count and self.state[index] in _WAITING:
            if self.state[index] != FRESH:
                self._remember_attempt(index)
            self.set(index, state)
            self.hold_until(index, None)
        if index is None and self.moments:
            self.moments, self.not_before = None, _NOTHING

    def _remember_attempt(self, index: int) -> None:
        """CALLED_OFF and EXPIRED tasks count as never placed, so that the last attempt is recorded explicitly."""
        self.attempts = _with(self.attempts, index, self.attempt(index))

    def let_wait(self, index: int) -> None:
        """A fresh or held task waits for its next attempt among the retries."""
        if self.state[index] in (FRESH, HELD):
            self._remember_attempt(index)
            self.set(index, RETRY)

    def held(self) -> Iterator[int]:
        return where(self.state, HELD)

    def orphans(self) -> list[int]:
        return list(where(self.state, ORPHAN)) if self.counts[ORPHAN] else []

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
        return 0 <= index < self.count and self.state[index] == LIVE and self.attempt(index) == attempt

    def pending(self) -> int:
        return self.counts[FRESH] + self.counts[RETRY]

    def done(self) -> bool:
        return self.counts[SUCCEEDED] == self.count

    def parts(self, now: str | None = None) -> list[tuple[PlacementHint, int]]:
        """The number of tasks that may be placed now (without a time: that wait), by placement hint; most have none."""
        total = self.pending() if now is None else self.ready(now)
        if not self.hints:
            return [(ANYWHERE, total)]
        hinted = Counter(
            hint
            for index, hint in self.hints.items()
            if self.state[index] == RETRY and (now is None or self.not_before.get(index, "") <= now)
        )
        return [(ANYWHERE, total - hinted.total()), *sorted(hinted.items())]

    def take(self, most: int, now: str, hint: PlacementHint = ANYWHERE) -> list[tuple[int, int]]:
        """Up to `most` tasks that may be placed now as (index, next attempt): retries first, then by index."""
        taken: list[tuple[int, int]] = []
        if self.counts[RETRY]:
            for index in where(self.state, RETRY):
                if len(taken) == most:
                    return taken
                if self.not_before.get(index, "") <= now and (not self.hints or self.hint(index) == hint):
                    taken.append((index, self.attempt(index) + 1))
        if self.counts[FRESH] and hint is ANYWHERE:
            first = self.state.find(FRESH, self.cursor)
            self.cursor = first if first >= 0 else self.cursor
            for index in where(self.state, FRESH, self.cursor):
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
