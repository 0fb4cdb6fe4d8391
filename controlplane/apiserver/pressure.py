"""Pressure: how far the leader is behind, as this replica sees it, and how many orders a second it lets in for that.

A cycle on record names the revision that it was decided on. How long ago this replica heard of the next revision is how
old the leader's newest decision is, on this replica's own clock. While that is more than a moment and many orders wait,
letting more orders in only takes the processor from orders that are under way: the rate is lowered step by step, and
raised again when the leader keeps up. While nobody leads no cycle is written, and nothing is limited.
"""

from __future__ import annotations

from collections import deque

# A decision older than HIGH_SECONDS is late; below LOW_SECONDS the leader keeps up. A leader that has the processor it
# needs takes some tens of milliseconds from one cycle to the next.
HIGH_SECONDS = 0.3
LOW_SECONDS = 0.15
# With fewer waiting orders than this the leader is not behind, whatever a single decision took.
BACKLOG_ORDERS = 1000
# At most one step in so many seconds: a step must show before the next.
STEP_SECONDS = 0.25
# A rate that is too low costs nothing while many orders wait; one that is too high does: down fast, up slowly.
LOWER, RAISE = 0.7, 1.1
# Whatever happens, so many orders a second get in.
LEAST_RATE = 20.0
# So long after the last cycle nothing is known of the leader any more.
RELIEF_SECONDS = 5.0
# Revisions are noted at most this often, and for so long.
_NOTE_SECONDS = 0.02
_MEMORY_SECONDS = 60.0


class LeaderLag:
    """When this replica heard of which revision."""

    def __init__(self) -> None:
        self._heard: deque[tuple[int, float]] = deque()

    def hear(self, revision: int, now: float) -> None:
        if self._heard and now - self._heard[-1][1] < _NOTE_SECONDS:
            return
        self._heard.append((revision, now))
        while now - self._heard[0][1] > _MEMORY_SECONDS:
            self._heard.popleft()

    def of(self, revision: int, now: float) -> float:
        """Seconds since the first revision above this one was heard of; 0 when there is none yet."""
        while self._heard and self._heard[0][0] <= revision:
            self._heard.popleft()
        return now - self._heard[0][1] if self._heard else 0.0


class Pressure:
    """The rate of orders that is let in; None: any. All moments are of one monotonic clock."""

    def __init__(self) -> None:
        self.rate: float | None = None
        self._stepped = 0.0
        self._decided = 0.0
        # Orders let in during this second and the one before: the rate that was too high when the first limit is set.
        self._second = 0
        self._count = 0
        self._before = 0

    def count(self, orders: int, now: float) -> None:
        """So many orders were let in."""
        second = int(now)
        if second != self._second:
            self._before = self._count if second == self._second + 1 else 0
            self._second, self._count = second, 0
        self._count += orders

    def decided(self, lag_seconds: float, waiting_orders: int, now: float) -> None:
        """A cycle was committed that far behind, while so many orders waited."""
        self._decided = now
        if waiting_orders < BACKLOG_ORDERS:
            self.rate = None
        elif now - self._stepped < STEP_SECONDS:
            return
        elif lag_seconds > HIGH_SECONDS:
            self._stepped = now
            self.rate = max(LEAST_RATE, LOWER * (max(self._before, self._count) if self.rate is None else self.rate))
        elif self.rate is not None and lag_seconds < LOW_SECONDS:
            self._stepped = now
            self.rate *= RAISE

    def look(self, waiting_orders: int, now: float) -> float | None:
        """The rate as it is now, which ends with its reason."""
        if waiting_orders < BACKLOG_ORDERS or now - self._decided > RELIEF_SECONDS:
            self.rate = None
        return self.rate
