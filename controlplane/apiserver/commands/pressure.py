"""Pressure: the delay of the leader, as this replica sees it, and the rate of orders admitted for that delay.

A cycle on record names the revision of its decision. The time since this replica heard of the next revision is the age
of the leader's newest decision, on this replica's own clock. While the age is above a moment and many orders wait, more
orders would only take the processor from orders under way: the rate is lowered step by step, and raised again when the
leader keeps up. Without a leader no cycle is written, and no rate is set.
"""

from __future__ import annotations

from collections import deque

# A decision older than HIGH_SECONDS is late; below LOW_SECONDS the leader keeps up. From one cycle to the next a leader
# with enough processor takes some tens of milliseconds.
HIGH_SECONDS = 0.3
LOW_SECONDS = 0.15
# With fewer waiting orders the leader is not behind, however long a single decision took.
BACKLOG_ORDERS = 1000
# At most one step in so many seconds: a step must show before the next.
STEP_SECONDS = 0.25
# While many orders wait, too low a rate costs nothing, but too high a rate does: down fast, up slowly.
LOWER, RAISE = 0.7, 1.1
# The lowest rate, in orders a second.
LEAST_RATE = 20.0
# So long after the last cycle the delay of the leader is unknown.
RELIEF_SECONDS = 5.0
# The least time between two noted revisions, and how long they are kept.
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
        """Seconds since the first revision above `revision` was heard of; 0 when none was."""
        while self._heard and self._heard[0][0] <= revision:
            self._heard.popleft()
        return now - self._heard[0][1] if self._heard else 0.0


class Pressure:
    """The rate of admitted orders; None: any. All moments are of one monotonic clock."""

    def __init__(self) -> None:
        self.rate: float | None = None
        self._stepped = 0.0
        self._decided = 0.0
        # Orders admitted in this second and in the second before: the rate to lower when a first limit is set.
        self._second = 0
        self._count = 0
        self._before = 0

    def count(self, orders: int, now: float) -> None:
        """So many orders were admitted."""
        second = int(now)
        if second != self._second:
            self._before = self._count if second == self._second + 1 else 0
            self._second, self._count = second, 0
        self._count += orders

    def decided(self, lag_seconds: float, waiting_orders: int, now: float) -> None:
        """A cycle was committed with this delay, while so many orders waited."""
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
        """The rate at this moment: the limit ends with its reason."""
        if waiting_orders < BACKLOG_ORDERS or now - self._decided > RELIEF_SECONDS:
            self.rate = None
        return self.rate
