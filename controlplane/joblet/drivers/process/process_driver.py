"""Attempts as child processes that outlive the joblet, each under a shim and in a folder of its own.

Promises: an attempt is spawned at most once, because its folder can be made only once; a joblet that starts again
adopts attempts that live, reports those that ended meanwhile, and calls lost those that left no evidence; no attempt
that holds a unique resource is called ended before all of its processes are gone.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Collection, Mapping

import msgspec
import structlog

from controlplane.aio.clock import Clock
from controlplane.joblet import task_files
from controlplane.joblet.attempt_records import AttemptRecords, identity_of
from controlplane.joblet.driver import Notice
from controlplane.joblet.drivers.process.attempt import START_PATIENCE, TROUBLE_SECONDS, ProcessAttempt
from controlplane.joblet.drivers.process.attempt_inspector import AttemptInspector, Fate
from controlplane.joblet.drivers.process.kept_runs import TOMBSTONE_SECONDS, KeptRuns
from controlplane.joblet.drivers.process.progress_reader import ProgressReader
from controlplane.joblet.drivers.process.reaper import Reaper
from controlplane.joblet.drivers.process.run_log import RunLog
from controlplane.joblet.drivers.process.rundir import RunDir, Stop, folder_name
from controlplane.joblet.drivers.process.shim_watch import ShimWatch
from controlplane.joblet.drivers.process.spawner import Spawner
from controlplane.joblet.drivers.process.starter import UNLIMITED, CommandLimits, Starter
from controlplane.joblet.drivers.process.task_area import TaskArea
from controlplane.joblet.joblet_state import JobletFolder
from controlplane.joblet.log_source import LogQuery, LogSource
from controlplane.joblet.reconcile import observed_task
from controlplane.model.driver_traits import PROCESS, traits_of
from controlplane.model.errors import NotFound
from controlplane.model.fulfilment import Fulfilment, ObservedTask, TaskRef
from controlplane.model.task import AttemptPhase

log = structlog.get_logger(__name__)


class ProcessDriver:
    traits = traits_of(PROCESS)
    gate = None
    capacity = None

    def __init__(
        self,
        state: JobletFolder,
        records: AttemptRecords,
        environment: Mapping[str, str],
        *,
        clock: Clock,
        area: TaskArea | None = None,
        limits: CommandLimits = UNLIMITED,
    ) -> None:
        """`area`: where commands have their folders, and as which user they run; None for this process's user."""
        self._clock = clock
        self._area = area
        self._notice: Notice = lambda identity: None
        self._attempts: dict[str, dict[TaskRef, ProcessAttempt]] = {}
        self._dying: set[ProcessAttempt] = set()
        self._kept = KeptRuns(clock)
        # Names of folders of ended attempts that were there at the start and were not read since.
        self._tombstones: set[str] = set()
        # Names of folders of attempts that an earlier joblet started, and that their own commands removed.
        self._vanished: set[str] = set()
        self._records = records
        self._inspector = AttemptInspector(clock)
        self._shims = ShimWatch(self._look, self.changed)
        self._reaper = Reaper(records, state.boot, clock=clock, reaped=self.changed)
        self._progress = ProgressReader(self._all, self._advance, self._look)
        self._runs = state.path / "runs"
        self._runs.mkdir(mode=0o700, exist_ok=True)
        # The output of all commands is in there.
        self._runs.chmod(0o700)
        self._spawner = Spawner(state.path, environment, self._watch)
        groups = area.user.groups if area is not None else ()
        self._starter = Starter(state, self._spawner, environment, limits, self, clock=clock, groups=groups)

    # Driver

    def attach(self, notice: Notice) -> None:
        self._notice = notice

    def fulfilments(self) -> Collection[str]:
        return list(self._attempts)

    def seen(self, fulfilment: str) -> Mapping[TaskRef, ObservedTask]:
        return {ref: attempt.observed for ref, attempt in self._attempts.get(fulfilment, {}).items()}

    def running(self) -> int:
        return sum(attempt.alive for attempts in self._attempts.values() for attempt in attempts.values())

    def busy(self) -> bool:
        return bool(self._dying) or self.running() > 0

    def dying(self) -> int:
        return sum(attempt.alive for attempt in self._dying)

    def blocks(self, fulfilment: Fulfilment) -> bool:
        holds = set(fulfilment.holds)
        desired = (
            attempt
            for identity, attempts in self._attempts.items()
            if identity != fulfilment.id
            for attempt in attempts.values()
        )
        return any(attempt.alive and holds.intersection(attempt.subject.holds) for attempt in (*desired, *self._dying))

    def start(self, fulfilment: Fulfilment, task: TaskRef) -> None:
        run, subject = self._run_of(fulfilment.order, task), identity_of(fulfilment, task)
        if self._area is not None:
            run.home = self._area.new_home(run.path.name)
        give_up_at = self._clock.monotonic() + START_PATIENCE.after(task.attempt)
        attempt = ProcessAttempt(run, subject, observed_task(task, AttemptPhase.STARTING), give_up_at)
        self._attempts.setdefault(fulfilment.id, {})[task] = attempt
        if run.path.name in self._vanished:
            self._reaper.reap(attempt)
        else:
            self._starter.begin(attempt, fulfilment)
        self._progress.watch()

    def stop(self, fulfilment: str, task: TaskRef, reason: str) -> None:
        attempt = self._attempts[fulfilment][task]
        if attempt.stopping is None:
            self._shims.ask_to_stop(attempt, Stop(reason=reason))

    def drop(self, fulfilment: str) -> None:
        for attempt in self._attempts.pop(fulfilment, {}).values():
            if attempt.alive:
                self._dying.add(attempt)
                self._shims.ask_to_stop(attempt, Stop(reason="Withdrawn", at_once=True))
            else:
                self._kept.add(attempt.run.path)

    async def run(self) -> None:
        """Callbacks do all the work."""
        await asyncio.Event().wait()

    def logs(self, query: LogQuery) -> LogSource:
        run = self._run_of(query.order, query.task)
        if not task_files.holds(run.path):
            kept = f"{TOMBSTONE_SECONDS / 60:g} minutes"
            raise NotFound(f"nothing is kept of it any more: output is kept for {kept} after the end")
        return RunLog(run, query)

    def _run_of(self, order: str, task: TaskRef) -> RunDir:
        return RunDir(self._runs / folder_name(order, task))

    # Adopting

    def adopt(self) -> None:
        """Takes over the attempts of earlier joblets that may still live. Needs the running loop.

        There may be tens of thousands of ended attempts, which are not desired: they stay tombstones until `recall`.
        """
        try:
            self._spawner.open()
        except OSError as error:
            log.warning("no shim can be started", error=str(error))
        names = sorted(os.listdir(self._runs))
        if self._area is not None:
            self._area.keep_only(set(names))
        self._vanished = {folder_name(*started) for started in self._records.last_started()}.difference(names)
        for name in names:
            run = RunDir(self._runs / name)
            if task_files.holds(run.path, "end.json"):
                self._kept.add(run.path)
                self._tombstones.add(name)
            else:
                self._adopt(run)

    def recall(self, fulfilment: Fulfilment) -> None:
        if not self._tombstones:
            return
        for task in fulfilment.tasks:
            name = folder_name(fulfilment.order, task)
            if name in self._tombstones:
                self._adopt(RunDir(self._runs / name))
                self._tombstones.discard(name)

    def _adopt(self, run: RunDir) -> None:
        """A folder without a spec is one in which nothing was begun."""
        spec = run.with_home().spec()
        if spec is None:
            self._kept.add(run.path)
            return
        self._kept.remove(run.path)
        attempt = ProcessAttempt(run, spec.subject, observed_task(spec.subject.ref, AttemptPhase.STARTING))
        self._attempts.setdefault(spec.subject.fulfilment, {})[attempt.ref] = attempt
        self._inspect(attempt)

    def close(self) -> None:
        """Stops watching. The commands go on."""
        for attempt in self._all():
            self._shims.leave(attempt)
            attempt.cancel_timer()
        self._reaper.close()
        self._progress.close()
        self._spawner.close()

    def _all(self) -> list[ProcessAttempt]:
        return [*self._dying, *(a for attempts in self._attempts.values() for a in attempts.values())]

    def _watch(self, descriptor: int, watched: bool) -> None:
        loop = asyncio.get_running_loop()
        if watched:
            loop.add_reader(descriptor, self._spawner.hear)
        else:
            loop.remove_reader(descriptor)

    # StartListener

    def begun_before(self, attempt: ProcessAttempt) -> None:
        self._inspect_or_later(attempt)

    def ended_at_once(self, attempt: ProcessAttempt) -> None:
        attempt.observe_end()

    def shim_born(self, attempt: ProcessAttempt, pidfd: int | None) -> None:
        if pidfd is None:
            self._look(attempt)
        else:
            self._shims.follow(attempt, pidfd)

    def shim_spoke(self, attempt: ProcessAttempt) -> None:
        try:
            attempt.observe_running()
        except OSError:
            attempt.observed = observed_task(attempt.ref, AttemptPhase.RUNNING)
        self._progress.watch()
        self._notice(attempt.subject.fulfilment)

    def make_room(self) -> None:
        self._kept.make_room()

    def changed(self, attempt: ProcessAttempt) -> None:
        """The worker hears of a dropped attempt too: its death may be what another fulfilment waits for."""
        if not attempt.alive and attempt in self._dying:
            self._dying.discard(attempt)
            self._kept.add(attempt.run.path)
        self._notice(attempt.subject.fulfilment)

    # Inspecting

    def _look(self, attempt: ProcessAttempt) -> None:
        self._inspect_or_later(attempt)
        self.changed(attempt)

    def _inspect_or_later(self, attempt: ProcessAttempt) -> None:
        attempt.timer = None
        try:
            self._inspect(attempt)
        except OSError as error:
            log.warning("an attempt cannot be inspected yet", run=attempt.run.path.name, error=str(error))
            self._shims.look_later(attempt, TROUBLE_SECONDS)

    def _inspect(self, attempt: ProcessAttempt) -> None:
        fate, pidfd = self._inspector.inspect(attempt)
        if fate is Fate.ALIVE:
            self._shims.follow(attempt, pidfd)
        elif fate is Fate.ORPHANED:
            self._reaper.reap(attempt)
        elif fate is Fate.UNCLEAR:
            self._shims.look_later(attempt)
        if attempt.observed.phase == AttemptPhase.RUNNING:
            self._progress.watch()

    def _advance(self, attempt: ProcessAttempt, percent: int | None) -> None:
        if attempt.observed.phase == AttemptPhase.RUNNING and percent != attempt.observed.percent:
            attempt.observed = msgspec.structs.replace(attempt.observed, percent=percent)
            self._notice(attempt.subject.fulfilment)
