"""The tasks of one job of an order, one byte each at most; more is kept only of tasks that an attempt left.

Knows nothing of orders: `ledger` tells it what happened, `wishes` what users want of its tasks.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections import Counter
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any, TypeVar

from controlplane.cache.detour import STRAIGHT, Detour
from controlplane.cache.task_states import States, untouched, where, writable
from controlplane.model import failure, times
from controlplane.model.fulfilment import EndedTask

# The last two are over without an attempt that ended so: cancelled by a wish, failed by the deadline.
FRESH, LIVE, RETRY, SUCCEEDED, FAILED, CANCELLED, HELD, ORPHAN, CALLED_OFF, EXPIRED = range(10)
OVER = frozenset({SUCCEEDED, FAILED, CANCELLED})
_WAITING = (FRESH, RETRY, HELD)
_NEVER_PLACED = frozenset({FRESH, CALLED_OFF, EXPIRED})
T = TypeVar("T")

_NOTHING: Mapping[int, Any] = MappingProxyType({})
_ENDING = {
    state: bytes(state if before in _WAITING else before for before in range(256)) for state in (CALLED_OFF, EXPIRED)
}
# The policy of retries on record that do not name theirs.
_FIRST_DEFAULT = "default[0]"


def _with(before: Mapping[int, T], index: int, value: T) -> Mapping[int, T]:
    """The mapping with this entry: changed in place, unless it is the empty one that all share."""
    if not isinstance(before, dict):
        return {index: value}
    before[index] = value
    return before


def _without(before: Mapping[int, T], index: int) -> Mapping[int, T]:
    if isinstance(before, dict):
        before.pop(index, None)
    return before or _NOTHING


class JobLedger:
    """The tasks of one job of the order."""

    __slots__ = (
        "attempts", "count", "counts", "cursor", "detours", "held_at", "moments", "not_before", "retries", "state",
    )  # fmt: skip

    def __init__(self, count: int) -> None:
        self.count = count
        self.state: States = untouched(count)
        self.counts = [count, 0, 0, 0, 0, 0, 0, 0, 0, 0]
        self.cursor = 0
        # Only what differs from "first attempt, may start now" is kept, and most jobs never need to.
        self.attempts: Mapping[int, int] = _NOTHING
        self.not_before: Mapping[int, str] = _NOTHING
        # The values of not_before, sorted.
        self.moments: list[str] | None = None
        # Where the next attempt does not go; since which revision a task is held; and by attempt, which policy tried a
        # task again for which reason.
        self.detours: Mapping[int, Detour] = _NOTHING
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
        """Notes the attempt; False when a later one is known already."""
        if not 0 <= index < self.count or attempt < self.attempt(index):
            return False
        if attempt > 1 or index in self.attempts:
            self.attempts = _with(self.attempts, index, attempt)
        return True

    def place(self, index: int, attempt: int) -> None:
        """The attempt is under way, unless a later one is known or the task is over."""
        if attempt == 1 and 0 <= index < self.count and self.state[index] == FRESH:
            self.counts[FRESH] -= 1
            self.counts[LIVE] += 1
            self._write(index, LIVE)
        elif self.saw(index, attempt) and self.state[index] not in OVER:
            self.set(index, LIVE)
            self.hold_until(index, None)

    def note_retry(self, task: EndedTask) -> None:
        """Ends may be told in any order, and more than once."""
        retries = self.retries.get(task.index, {})
        retries[task.attempt] = (task.policy or _FIRST_DEFAULT, failure.reason_of(task.reason))
        self.retries = _with(self.retries, task.index, retries)

    def retried(self, index: int) -> Counter[tuple[str, str]]:
        """How often the task was tried again, by policy and reason."""
        return Counter(self.retries.get(index, {}).values())

    def detour(self, index: int) -> Detour:
        return self.detours.get(index, STRAIGHT)

    def send(self, index: int, detour: Detour) -> None:
        """Where the task's next attempt goes, and where not."""
        if detour != STRAIGHT:
            self.detours = _with(self.detours, index, detour)
        elif index in self.detours:
            self.detours = _without(self.detours, index)

    def note_hold(self, index: int, revision: int) -> None:
        self.held_at = _with(self.held_at, index, revision)

    def forget(self, index: int) -> None:
        """The task is over: nothing depends any more on what became of its attempts."""
        if index in self.detours:
            self.detours = _without(self.detours, index)
        if index in self.held_at:
            self.held_at = _without(self.held_at, index)
        if index in self.retries:
            self.retries = _without(self.retries, index)

    def waiting(self) -> int:
        """Tasks that no target carries and that are not over, held ones too."""
        return self.counts[FRESH] + self.counts[RETRY] + self.counts[HELD]

    def end_waiting(self, state: int, index: int | None = None) -> None:
        """One task or all, as far as they wait, are over without another attempt."""
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
        """What is over without an attempt that ended so looks as if it never had one."""
        self.attempts = _with(self.attempts, index, self.attempt(index))

    def let_wait(self, index: int) -> None:
        """A task that was not placed yet, or is held, waits for its next attempt among those that had one."""
        if self.state[index] in (FRESH, HELD):
            self._remember_attempt(index)
            self.set(index, RETRY)

    def held(self) -> Iterator[int]:
        return where(self.state, HELD)

    def orphans(self) -> list[int]:
        return list(where(self.state, ORPHAN)) if self.counts[ORPHAN] else []

    def hold_until(self, index: int, moment: str | None) -> None:
        """The task's next attempt may not begin before then; None: at any time."""
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
        """Whether this very attempt is the one that is placed."""
        return 0 <= index < self.count and self.state[index] == LIVE and self.attempt(index) == attempt

    def pending(self) -> int:
        return self.counts[FRESH] + self.counts[RETRY]

    def done(self) -> bool:
        return self.counts[SUCCEEDED] == self.count

    def parts(self, now: str | None = None) -> list[tuple[Detour, int]]:
        """How many tasks may be placed now (without a time: wait) by where they may not go; most go anywhere."""
        total = self.pending() if now is None else self.ready(now)
        if not self.detours:
            return [(STRAIGHT, total)]
        found = Counter(
            detour
            for index, detour in self.detours.items()
            if self.state[index] == RETRY and (now is None or self.not_before.get(index, "") <= now)
        )
        return [(STRAIGHT, total - found.total()), *sorted(found.items())]

    def take(self, most: int, now: str, detour: Detour = STRAIGHT) -> list[tuple[int, int]]:
        """Up to `most` tasks that may be placed now as (index, next attempt): retries first, then by index."""
        taken: list[tuple[int, int]] = []
        if self.counts[RETRY]:
            for index in where(self.state, RETRY):
                if len(taken) == most:
                    return taken
                if self.not_before.get(index, "") <= now and (not self.detours or self.detour(index) == detour):
                    taken.append((index, self.attempt(index) + 1))
        if self.counts[FRESH] and detour is STRAIGHT:
            first = self.state.find(FRESH, self.cursor)
            self.cursor = first if first >= 0 else self.cursor
            for index in where(self.state, FRESH, self.cursor):
                if len(taken) == most:
                    break
                taken.append((index, 1))
        return taken

    def ready(self, now: str) -> int:
        """How many tasks may be placed now."""
        return self.pending() - (len(self.moments) - bisect_right(self.moments, now) if self.moments else 0)

    def next_time(self, now: str) -> str | None:
        """When the next of those that back off may be placed."""
        following = bisect_right(self.moments, now) if self.moments else 0
        return self.moments[following] if self.moments and following < len(self.moments) else None
