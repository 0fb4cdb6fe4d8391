"""Back-off: pauses between tries, longer after each failure up to a bound, and out of step with other processes.

A `Backoff` is a pure schedule: callers bring the number of failures and the randomness. `Retries` counts for callers
that keep no count of their own. Sleeping is left to the caller, who owns the clock.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Backoff:
    """`delays` in seconds follow the first, second and later failures in a row; the last delay holds for all others.

    `jitter` is the part of a delay that chance may take away, from 0 to 1.
    """

    delays: tuple[float, ...]
    jitter: float = 0.0

    def after(self, failures: int, draw: float = 1.0) -> float:
        """Seconds to wait after so many failures in a row (at least 1); `draw` is a random number from 0 to 1."""
        delay = self.delays[min(failures, len(self.delays)) - 1]
        return delay * (1.0 - self.jitter * (1.0 - draw))


def doubling(first: float, most: float, *, jitter: float = 0.0) -> Backoff:
    """A schedule that begins with `first` seconds and doubles up to `most`."""
    delays = [first]
    while delays[-1] < most:
        delays.append(min(delays[-1] * 2, most))
    return Backoff(tuple(delays), jitter)


class Retries:
    """Counts failures in a row of repeated work; `draw` gives random numbers from 0 to 1."""

    def __init__(self, backoff: Backoff, draw: Callable[[], float] = random.random) -> None:
        self._backoff = backoff
        self._draw = draw
        self.failures = 0

    def succeeded(self) -> None:
        self.failures = 0

    def failed(self) -> float:
        """Counts a failure; returns the seconds until the next try."""
        self.failures += 1
        return self._backoff.after(self.failures, self._draw())
