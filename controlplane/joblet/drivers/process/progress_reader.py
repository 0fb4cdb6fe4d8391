"""Reads the progress of running attempts once a second, off the loop, and looks at attempts that are not watched."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from controlplane.joblet.drivers.process.attempt import ProcessAttempt
from controlplane.model.task import AttemptPhase

PROGRESS_SECONDS = 1.0


class ProgressReader:
    """One timer for all attempts, and none while no attempt lives."""

    def __init__(
        self,
        attempts: Callable[[], Sequence[ProcessAttempt]],
        advance: Callable[[ProcessAttempt, int | None], None],
        look: Callable[[ProcessAttempt], None],
    ) -> None:
        self._attempts = attempts
        self._advance = advance
        self._look = look
        self._timer: asyncio.TimerHandle | None = None
        self._reading: asyncio.Task[None] | None = None

    def watch(self) -> None:
        """An attempt lives: its progress is read from now on."""
        if self._timer is None and self._reading is None:
            self._timer = asyncio.get_running_loop().call_later(PROGRESS_SECONDS, self._tick)

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if self._reading is not None:
            self._reading.cancel()

    def _tick(self) -> None:
        self._timer = None
        self._reading = asyncio.get_running_loop().create_task(self._read())

    async def _read(self) -> None:
        attempts = self._attempts()
        for attempt in attempts:
            if attempt.unwatched:
                self._look(attempt)
        running = [attempt for attempt in attempts if attempt.observed.phase == AttemptPhase.RUNNING]
        percents = await asyncio.to_thread(_percents, running)
        for attempt, percent in zip(running, percents, strict=True):
            self._advance(attempt, percent)
        self._reading = None
        if any(attempt.alive for attempt in attempts):
            self.watch()


def _percents(running: Sequence[ProcessAttempt]) -> list[int | None]:
    return [_percent(attempt) for attempt in running]


def _percent(attempt: ProcessAttempt) -> int | None:
    """The former percentage when the file cannot be read now."""
    try:
        return attempt.run.percent()
    except OSError:
        return attempt.observed.percent
