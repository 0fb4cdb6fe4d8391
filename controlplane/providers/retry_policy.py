"""The retry policy: how a provider repeats a request without an answer. Only for idempotent requests."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from controlplane.aio.backoff import Backoff, doubling
from controlplane.aio.clock import Clock
from controlplane.model.errors import ControlPlaneError

_BACKOFF = doubling(0.5, 8.0)


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """How long an answer is awaited, how often the request is sent, and the pauses in between."""

    answer_seconds: float = 10.0
    tries: int = 3
    backoff: Backoff = _BACKOFF

    async def repeat(
        self,
        request: Callable[[], Awaitable[None]],
        clock: Clock,
        *,
        after: tuple[type[ControlPlaneError], ...],
        asked_seconds: Callable[[], float] = lambda: 0.0,
    ) -> None:
        """Sends the request until a success, and raises the last of the errors of `after` when all tries failed.

        `asked_seconds` is added to a pause: how long the server asked to wait in its last answer.
        """
        for failures in range(1, self.tries + 1):
            try:
                await request()
                return
            except after:
                if failures == self.tries:
                    raise
            await clock.sleep(self.backoff.after(failures) + asked_seconds())
