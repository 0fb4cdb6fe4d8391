"""SubjectLimits: how much of a replica one subject may use: requests, open streams and received bytes.

The defaults are far above ordinary use: a subject that floods a replica hurts only itself. Every replica counts by
itself. Allowances are kept as the time until which a subject has used its rate up, in whole nanoseconds, so that no
rounding adds up. A refusal uses nothing up. Subjects that used nothing lately are forgotten.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from controlplane.aio.clock import Clock
from controlplane.model.errors import LimitExceeded

RATE_PER_SECOND: Final = 2_000
BURST: Final = 4_000
MOST_STREAMS: Final = 1_000
BYTES_PER_SECOND: Final = 64 << 20

_SECOND: Final = 1_000_000_000
_MILLISECOND: Final = 1_000_000
_MICROSECOND: Final = 1_000
# For each new subject so many of the others are looked at, so that idle subjects go faster than new subjects come.
_LOOKED_AT: Final = 2


class SubjectLimits:
    """On the event loop. Each call takes constant time."""

    def __init__(
        self,
        clock: Clock,
        *,
        rate_per_second: float = RATE_PER_SECOND,
        burst: int = BURST,
        most_streams: int = MOST_STREAMS,
        bytes_per_second: float = BYTES_PER_SECOND,
    ) -> None:
        self._clock = clock
        self._rate_per_second = rate_per_second
        self._request_cost = math.ceil(_SECOND / rate_per_second)
        self._request_slack = (burst - 1) * self._request_cost
        self._bytes_per_second = bytes_per_second
        self._most_streams = most_streams
        # The subject in front is the next to be looked at.
        self._subjects: OrderedDict[str, _Usage] = OrderedDict()

    def __len__(self) -> int:
        """The number of remembered subjects."""
        return len(self._subjects)

    def admit(self, subject_name: str) -> None:
        """Counts a request; LimitExceeded, with the time of the next chance, when the subject sends too many."""
        now = self._now()
        usage = self._usage(subject_name, now)
        over = usage.requests_until - now - self._request_slack
        if over > 0:
            raise _too_fast(f"{self._rate_per_second:g} requests a second", over)
        usage.requests_until = max(usage.requests_until, now) + self._request_cost

    def received(self, subject_name: str, byte_count: int) -> None:
        """Counts the bytes of a message; LimitExceeded when the subject sent more than a second's worth before.

        The message that goes beyond the limit passes, whatever its size, and the next messages pay for it.
        """
        now = self._now()
        usage = self._usage(subject_name, now)
        over = usage.bytes_until - now - _SECOND
        if over > 0:
            raise _too_fast(f"{self._bytes_per_second:g} bytes a second", over)
        cost = math.ceil(byte_count * _SECOND / self._bytes_per_second)
        usage.bytes_until = max(usage.bytes_until, now) + cost

    @contextmanager
    def stream(self, subject_name: str) -> Iterator[None]:
        """Counts an open stream until its end; LimitExceeded above the most. Only the end of another stream helps."""
        usage = self._usage(subject_name, self._now())
        if usage.streams >= self._most_streams:
            raise LimitExceeded(f"a subject must not have above {self._most_streams} streams open")
        usage.streams += 1
        try:
            yield
        finally:
            usage.streams -= 1

    def _now(self) -> int:
        return int(self._clock.monotonic() * _SECOND)

    def _usage(self, subject_name: str, now: int) -> _Usage:
        usage = self._subjects.get(subject_name)
        if usage is None:
            self._forget_idle(now)
            usage = self._subjects[subject_name] = _Usage()
        return usage

    def _forget_idle(self, now: int) -> None:
        for _ in range(min(_LOOKED_AT, len(self._subjects))):
            name, usage = self._subjects.popitem(last=False)
            if not usage.is_idle(now):
                self._subjects[name] = usage


class _Usage:
    """`requests_until` and `bytes_until`: when the rate, used evenly, would have allowed all that was used."""

    __slots__ = ("bytes_until", "requests_until", "streams")

    def __init__(self) -> None:
        self.requests_until = 0
        self.bytes_until = 0
        self.streams = 0

    def is_idle(self, now: int) -> bool:
        """Whether a subject without a past has the same allowance."""
        return not self.streams and self.requests_until <= now and self.bytes_until <= now


def _too_fast(limit: str, over: int) -> LimitExceeded:
    """The time to wait is rounded up, by more than a clock errs: a subject that waits so long is not early."""
    seconds = math.ceil((over + _MICROSECOND) / _MILLISECOND) / 1000
    message = f"a subject must not send above {limit}; try again in {seconds:g} s"
    return LimitExceeded(message, retry_after_seconds=seconds)
