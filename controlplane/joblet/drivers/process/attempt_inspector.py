"""The fate of an attempt that was begun before, read from its folder and from the processes of this machine.

The lock on `spec.json` decides: a shim holds it for as long as it lives. An inspection changes nothing but the
attempt's observation, and, where certainly no shim began, the folder, so that none begins there later.
"""

from __future__ import annotations

import contextlib
import errno
import os
from enum import Enum
from typing import NamedTuple

from controlplane.aio.clock import Clock
from controlplane.joblet import task_files
from controlplane.joblet.drivers.process import process_search
from controlplane.joblet.drivers.process.attempt import ProcessAttempt
from controlplane.joblet.drivers.process.rundir import End
from controlplane.joblet.reconcile import lost
from controlplane.model import times
from controlplane.model.task import AttemptPhase

# After so many looks a shim that shows no evidence is not at its beginning any more.
MOST_LOOKS = 25


class Fate(Enum):
    SETTLED = "settled"  # the observation is final
    ALIVE = "alive"  # the shim lives
    ORPHANED = "orphaned"  # the shim died without writing an end: the rest of its command has to be reaped
    UNCLEAR = "unclear"  # the shim is at its very beginning or its very end: look again in a moment


class Finding(NamedTuple):
    """`pidfd` is a descriptor of the shim's process, and only of a shim that is ALIVE."""

    fate: Fate
    pidfd: int = -1


class AttemptInspector:
    def __init__(self, clock: Clock) -> None:
        self._clock = clock

    def inspect(self, attempt: ProcessAttempt) -> Finding:
        """Raises OSError when this process lacks what it takes to find out: the same look may work a moment later."""
        spec = attempt.run.spec()
        if spec is not None and spec.subject.fulfilment != attempt.subject.fulfilment:
            attempt.observed = lost(attempt.ref, f"it was begun before for fulfilment {spec.subject.fulfilment}")
            return Finding(Fate.SETTLED)
        if attempt.observe_end():
            return Finding(Fate.SETTLED)
        try:
            lock = attempt.run.try_lock()
        except OSError as error:
            if task_files.is_exhausted(error.errno):
                raise
            # The command removed the file that its shim locked: only the shim's process can tell.
            attempt.looks = MOST_LOOKS
            return self._look_for_shim(attempt, otherwise=Fate.ORPHANED)
        if lock is None:
            return self._look_for_shim(attempt, otherwise=Fate.UNCLEAR)
        try:
            unseen = attempt.run.end() is None and attempt.run.shim() is None
            if unseen and attempt.observed.phase == AttemptPhase.STARTING:
                self._never_began(attempt)
                return Finding(Fate.SETTLED)
        finally:
            os.close(lock)
        return Finding(Fate.SETTLED if attempt.observe_end() else Fate.ORPHANED)

    def _never_began(self, attempt: ProcessAttempt) -> None:
        """Only while holding the lock. A shim that was forked and is gone could not even write that it began."""
        finished = times.show(self._clock.wall())
        if attempt.born:
            end = End(how="not_started", code=errno.ENOSPC, finished=finished)
            with contextlib.suppress(OSError):
                attempt.run.write_end(end)
        else:
            attempt.run.abandon()
            message = "it was about to be started when its joblet or what starts its shims died"
            end = End(how="lost", finished=finished, message=message)
            attempt.run.write_end(end)
        attempt.observed = attempt.run.observe_end(attempt.ref, end, attempt.stopping)

    def _look_for_shim(self, attempt: ProcessAttempt, *, otherwise: Fate) -> Finding:
        """The shim by its evidence; where its command removed the evidence, by a search among all processes."""
        evidence = attempt.run.shim()
        if evidence is not None:
            pidfd = process_search.open_process(evidence.pid, evidence.ticks)
        else:
            attempt.looks += 1
            pidfd = process_search.open_shim(attempt.run.path) if attempt.looks > MOST_LOOKS else None
        if evidence is not None or pidfd is not None:
            attempt.observe_running()
        return Finding(otherwise) if pidfd is None else Finding(Fate.ALIVE, pidfd)
