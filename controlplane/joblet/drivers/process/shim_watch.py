"""Watches shims through descriptors of their processes, and hands the wish to stop on to them.

A stop is a file in the attempt's folder and a SIGTERM to its shim. Both are repeated until they work or the attempt has
ended, so that a full disk or a shim that was not found yet only delays a stop.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import Callable

import structlog

from controlplane.joblet.drivers.process.attempt import TROUBLE_SECONDS, ProcessAttempt
from controlplane.joblet.drivers.process.rundir import Stop
from controlplane.joblet.reconcile import observed_task
from controlplane.model.task import AttemptPhase

LOOK_AGAIN_SECONDS = 0.02
log = structlog.get_logger(__name__)


class ShimWatch:
    """`look` is called when a shim exited, or when the time has come to look for it again."""

    def __init__(self, look: Callable[[ProcessAttempt], None], changed: Callable[[ProcessAttempt], None]) -> None:
        self._look = look
        self._changed = changed

    def follow(self, attempt: ProcessAttempt, pidfd: int) -> None:
        """Takes the descriptor over. A stop that was asked for before reaches the shim now."""
        attempt.pidfd = pidfd
        asyncio.get_running_loop().add_reader(pidfd, self._exited, attempt)
        if attempt.stopping is not None:
            self.ask_to_stop(attempt, attempt.stopping)

    def leave(self, attempt: ProcessAttempt) -> None:
        if attempt.pidfd >= 0:
            asyncio.get_running_loop().remove_reader(attempt.pidfd)
            os.close(attempt.pidfd)
            attempt.pidfd = -1

    def look_later(self, attempt: ProcessAttempt, seconds: float = LOOK_AGAIN_SECONDS) -> None:
        attempt.cancel_timer()
        attempt.timer = asyncio.get_running_loop().call_later(seconds, self._look, attempt)

    def ask_to_stop(self, attempt: ProcessAttempt, stop: Stop) -> None:
        """An attempt that still waits for room to start ends at once."""
        attempt.stopping = stop
        if not attempt.alive or attempt.being_reaped or attempt.awaited:
            return
        if attempt.waits_for_room:
            attempt.cancel_timer()
            attempt.waits_for_room = False
            attempt.observed = observed_task(attempt.ref, AttemptPhase.CANCELLED, reason=stop.reason)
            asyncio.get_running_loop().call_soon(self._changed, attempt)
            return
        try:
            attempt.run.write_stop(stop)
        except OSError as error:
            log.warning("a stop cannot be written yet", run=attempt.run.path.name, error=str(error))
            asyncio.get_running_loop().call_later(TROUBLE_SECONDS, self.ask_to_stop, attempt, stop)
        self._terminate(attempt)

    def _terminate(self, attempt: ProcessAttempt) -> None:
        """Without a descriptor the shim is looked for, and asked once it is found."""
        if attempt.pidfd < 0:
            if attempt.timer is None:
                self.look_later(attempt)
            return
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(attempt.pidfd, signal.SIGTERM)

    def _exited(self, attempt: ProcessAttempt) -> None:
        self.leave(attempt)
        self._look(attempt)
