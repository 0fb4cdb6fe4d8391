"""The consequences of a change of a run: records, notices, stops, removals, tombstones.

A pod whose fulfilment is no longer desired is removed at once while it lives, and kept as a tombstone for a while when
it has ended. A pod that cannot start is stopped when the patience with its reason is over. A removal is sent once; only
a drop replaces a polite stop by a removal at once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

from controlplane.aio.background import BackgroundTasks
from controlplane.joblet.attempt_records import AttemptIdentity, AttemptRecords
from controlplane.joblet.drivers.kubernetes.journal import Journal
from controlplane.joblet.drivers.kubernetes.observing import Stopping, hopeless
from controlplane.joblet.drivers.kubernetes.pod_remover import PodRemover
from controlplane.joblet.drivers.kubernetes.pod_run import PodRun, RecordState, Removal, RunTable, Stage
from controlplane.model.fulfilment import TaskRef
from controlplane.model.task import ALIVE


@dataclass(frozen=True, slots=True)
class ClusterTimes:
    """In seconds: how long an ended pod is kept, how long a pod may wait for whatever it cannot start without, how long
    the API may be away before the target counts as silent."""

    tombstone: float = 600.0
    start: float = 300.0
    away: float = 10.0


class PodSupervisor:
    """`notice` is called with the fulfilment of every run that changed."""

    def __init__(
        self,
        runs: RunTable,
        remover: PodRemover,
        journal: Journal,
        records: AttemptRecords,
        *,
        times: ClusterTimes,
        tasks: BackgroundTasks,
        notice: Callable[[str], None],
    ) -> None:
        self._runs = runs
        self._remover = remover
        self._journal = journal
        self._records = records
        self._times = times
        self._tasks = tasks
        self._notice = notice
        self._timers: dict[str, asyncio.TimerHandle] = {}

    def close(self) -> None:
        for timer in self._timers.values():
            timer.cancel()

    def record_starts(self, run: PodRun) -> None:
        """Raises OSError when not all starts are on record: the next call goes on with the first that is missing."""
        while run.recorded_starts < len(run.intent.tasks):
            self._records.append("started", _identity(run, run.intent.tasks[run.recorded_starts]), pid=0)
            run.recorded_starts += 1

    def changed(self, run: PodRun) -> None:
        self._runs.count(run)
        if not run.alive:
            self._record_ends(run)
        if run.over:
            self._retire(run)
        elif run.there:
            self._stop_when_hopeless(run)
            if run.stopping is not None:
                self._remove(run, Removal.STOP)
        self._notice(run.id)

    def stop(self, run: PodRun, why: Stopping) -> None:
        if run.stopping is not None:
            return
        run.stopping = why
        if run.unsent:
            asyncio.get_running_loop().call_soon(self._never_sent, run)
        elif run.there:
            self._remove(run, Removal.STOP)

    def drop(self, run: PodRun) -> None:
        run.dropped = True
        self._runs.count(run)
        self._cancel_timer(run)
        if run.unsent:
            self._never_sent(run)
        else:
            self._retire(run)

    def _never_sent(self, run: PodRun) -> None:
        run.never_sent()
        self.changed(run)

    def _retire(self, run: PodRun) -> None:
        if run.stage in (Stage.GONE, Stage.REFUSED):
            if run.dropped:
                self._forget(run)
        elif run.there and run.alive:
            self._remove(run, Removal.AT_ONCE)
        elif run.there and run.id not in self._timers:
            self._set_timer(run, self._times.tombstone, self._bury)

    def _bury(self, run: PodRun) -> None:
        """The time of the tombstone is over. Its timer stays noted, so that no second one is set."""
        self._remove(run, Removal.AT_ONCE)

    def _remove(self, run: PodRun, removal: Removal) -> None:
        if run.removal >= removal:
            return
        run.removal = removal
        if removal is Removal.STOP:
            assert run.stopping is not None
            self._tasks.spawn(self._remover.stop(run, run.stopping))
            return
        if run.dropped:
            run.stopping = None
        self._tasks.spawn(self._remover.remove(run))

    def _forget(self, run: PodRun) -> None:
        self._runs.remove(run)
        self._cancel_timer(run)
        if run.intent.files:
            self._tasks.spawn(self._remover.remove_files(run))
        self._journal.remove(run.id)

    def _stop_when_hopeless(self, run: PodRun) -> None:
        assert run.pod is not None
        if (why := hopeless(run.pod, patience_over=False)) is not None:
            self.stop(run, why)
        elif hopeless(run.pod, patience_over=True) is None:
            self._cancel_timer(run)
        elif run.id not in self._timers:
            self._set_timer(run, self._times.start, self._patience_over)

    def _patience_over(self, run: PodRun) -> None:
        self._timers.pop(run.id, None)
        if run.there and run.pod is not None:
            why = hopeless(run.pod, patience_over=True)
            if why is not None:
                self.stop(run, why)

    def _set_timer(self, run: PodRun, seconds: float, act: Callable[[PodRun], None]) -> None:
        self._timers[run.id] = asyncio.get_running_loop().call_later(seconds, act, run)

    def _cancel_timer(self, run: PodRun) -> None:
        if (timer := self._timers.pop(run.id, None)) is not None:
            timer.cancel()

    def _record_ends(self, run: PodRun) -> None:
        if run.recorded is not RecordState.STARTS:
            return
        run.recorded = RecordState.ENDS
        for ref in run.intent.tasks:
            seen = run.observed.get(ref)
            if seen is not None and seen.phase not in ALIVE:
                self._records.append_later("ended", _identity(run, ref), pid=0, exit_code=seen.exit_code)


def _identity(run: PodRun, ref: TaskRef) -> AttemptIdentity:
    intent = run.intent
    return AttemptIdentity(
        intent.order, ref.job, ref.index, ref.attempt, intent.fulfilment, intent.target, intent.holds
    )
