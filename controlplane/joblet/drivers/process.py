"""Attempts as child processes that outlive the joblet, each under a shim and in a folder of its own.

Promises: an attempt is spawned at most once, because its folder can be made only once; a joblet that starts again
adopts what lives, reports what ended meanwhile, and calls lost what left no evidence; nothing that holds a unique
resource is called ended before all of its processes are gone.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import Collection, Mapping
from functools import partial

import msgspec
import structlog

from controlplane.aio.clock import Clock
from controlplane.joblet.driver import Notice
from controlplane.joblet.drivers import leftovers
from controlplane.joblet.drivers.graveyard import TOMBSTONE_SECONDS, Graveyard
from controlplane.joblet.drivers.run_log import RunLog
from controlplane.joblet.drivers.rundir import End, RunDir, Spec, Stop
from controlplane.joblet.drivers.spawner import Spawner
from controlplane.joblet.environment import environment_of, expand
from controlplane.joblet.home import Folder
from controlplane.joblet.log_source import LogQuery, LogSource
from controlplane.joblet.reconcile import ALIVE, lost, observed_task
from controlplane.joblet.records import Records, Subject, inside, subject_of
from controlplane.model import times
from controlplane.model.errors import NotFound
from controlplane.model.fulfilment import Fulfilment, ObservedTask, TaskRef

PROGRESS_SECONDS = 1.0
LOOK_AGAIN_SECONDS = 0.02
log = structlog.get_logger()


class Attempt:
    """`pidfd` is the shim's; -1 when none is watched."""

    def __init__(self, run: RunDir, subject: Subject, observed: ObservedTask) -> None:
        self.run = run
        self.subject = subject
        self.observed = observed
        self.pidfd = -1
        self.stopping: Stop | None = None

    @property
    def ref(self) -> TaskRef:
        return TaskRef(job=self.subject.job, index=self.subject.index, attempt=self.subject.attempt)

    @property
    def alive(self) -> bool:
        return self.observed.phase in ALIVE


class ProcessDriver:
    stops_apart = True
    gate = None
    capacity = None

    def __init__(
        self, home: Folder, records: Records, environment: Mapping[str, str], *, clock: Clock, nice: int = 0
    ) -> None:
        self._home = home
        self._nice = nice
        self._records = records
        self._environment = dict(environment)
        self._clock = clock
        self._notice: Notice = lambda identity: None
        self._attempts: dict[str, dict[TaskRef, Attempt]] = {}
        self._dying: set[Attempt] = set()
        self._burials: set[asyncio.Task[None]] = set()
        self._graves = Graveyard(clock)
        self._ticking = False
        self._runs = home.path / "runs"
        self._runs.mkdir(exist_ok=True)
        self._spawner = Spawner(home.path, self._environment, self._watch)

    # What the joblet asks

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
        subject = subject_of(fulfilment, task)
        run = self._run_of(fulfilment.order, task)
        environment = self._environment_of(fulfilment, task, run)
        job = fulfilment.jobs.get(task.job)
        spec = Spec(
            subject=subject,
            command=tuple(expand(job.command, environment)) if job is not None else (),
            time_limit=job.time_limit if job is not None else None,
        )
        attempt = Attempt(run, subject, observed_task(task, "Starting"))
        self._attempts.setdefault(fulfilment.id, {})[task] = attempt
        try:
            run.prepare(spec)
            run.place_files(job.files.values() if job is not None else ())
            self._spawn(attempt, spec, environment)
        except FileExistsError:
            self._find(attempt)
        except OSError as error:
            attempt.observed = observed_task(task, "Failed", reason="StartError", message=str(error))

    def stop(self, fulfilment: str, task: TaskRef, reason: str) -> None:
        attempt = self._attempts[fulfilment][task]
        if attempt.stopping is None:
            self._ask_to_stop(attempt, Stop(reason=reason))

    def drop(self, fulfilment: str) -> None:
        for attempt in self._attempts.pop(fulfilment, {}).values():
            if attempt.alive:
                self._dying.add(attempt)
                self._ask_to_stop(attempt, Stop(reason="Withdrawn", at_once=True))
            else:
                self._graves.add(attempt.run.path)

    async def run(self) -> None:
        """Callbacks do all the work."""
        await asyncio.Event().wait()

    def logs(self, query: LogQuery) -> LogSource:
        run = self._run_of(query.order, query.task)
        if not run.path.is_dir():
            kept = f"{TOMBSTONE_SECONDS / 60:g} minutes"
            raise NotFound(f"nothing is kept of it any more: output is kept for {kept} after the end")
        return RunLog(run, query)

    def _run_of(self, order: str, task: TaskRef) -> RunDir:
        return RunDir(self._runs / f"{order}.{task.job}.{task.index}.{task.attempt}")

    # Starting and adopting

    def adopt(self) -> None:
        """Finds what earlier lives of this joblet started. Needs the running loop."""
        try:
            self._spawner.open()
        except OSError as error:
            log.warning("no shim can be started", error=str(error))
        for path in sorted(self._runs.iterdir()):
            run = RunDir(path)
            spec = run.spec()
            if spec is None:
                continue  # nothing was spawned; if it is still desired, its start will find the folder
            ref = TaskRef(job=spec.subject.job, index=spec.subject.index, attempt=spec.subject.attempt)
            attempt = Attempt(run, spec.subject, observed_task(ref, "Starting"))
            self._attempts.setdefault(spec.subject.fulfilment, {})[ref] = attempt
            self._find(attempt)

    def close(self) -> None:
        """Stops watching. The commands go on."""
        for attempt in [*self._dying, *(a for attempts in self._attempts.values() for a in attempts.values())]:
            self._unwatch(attempt)
        for burial in self._burials:
            burial.cancel()
        self._spawner.close()

    def _watch(self, descriptor: int, watched: bool) -> None:
        loop = asyncio.get_running_loop()
        if watched:
            loop.add_reader(descriptor, self._spawner.hear)
        else:
            loop.remove_reader(descriptor)

    def _environment_of(self, fulfilment: Fulfilment, task: TaskRef, run: RunDir) -> dict[str, str]:
        """A file that is mounted elsewhere is in the attempt's folder here, and variables that hold its path say so."""
        job = fulfilment.jobs.get(task.job)
        files = {path: str(run.file(number)) for number, path in enumerate(job.files if job is not None else ())}
        return {
            **{name: files.get(value, value) for name, value in environment_of(fulfilment, task).items()},
            "CONTROLPLANE_PROGRESS": str(run.progress),
            "CONTROLPLANE_ARTEFACTS": str(run.artefacts),
        }

    def _spawn(self, attempt: Attempt, spec: Spec, environment: dict[str, str]) -> None:
        if not spec.command:
            attempt.run.write_end(End(how="not_started", finished=self._now()))
            self._ended(attempt)
            return
        told = {
            "command": list(spec.command),
            "environment": {**self._environment, **environment},
            "record": inside(attempt.subject),
            "time_limit": spec.time_limit,
            "holder": bool(attempt.subject.holds),
            "nice": self._nice,
            "boot": self._home.boot,
            "until": self._home.until,
        }
        heard = self._spawner.spawn(attempt.run.path, told, partial(self._shim_born, attempt))
        asyncio.get_running_loop().add_reader(heard, self._shim_spoke, attempt, heard)

    def _shim_born(self, attempt: Attempt, pidfd: int | None) -> None:
        if pidfd is not None:
            attempt.pidfd = pidfd
            asyncio.get_running_loop().add_reader(pidfd, self._shim_exited, attempt)
            if attempt.stopping is not None:
                self._ask_to_stop(attempt, attempt.stopping)
            return
        self._find(attempt)
        if attempt.alive:
            self._notice(attempt.subject.fulfilment)
        else:
            self._after_end(attempt)

    def _find(self, attempt: Attempt) -> None:
        """Learns from the folder alone what became of an attempt that was begun before."""
        spec = attempt.run.spec()
        if spec is not None and spec.subject.fulfilment != attempt.subject.fulfilment:
            attempt.observed = lost(attempt.ref, f"it was begun before for fulfilment {spec.subject.fulfilment}")
        elif attempt.run.end() is not None:
            self._ended(attempt)
        elif (lock := attempt.run.try_lock()) is not None:
            self._find_dead(attempt, lock)
        else:
            self._find_alive(attempt)

    def _find_dead(self, attempt: Attempt, lock: int) -> None:
        evidence = attempt.run.shim()
        try:
            if attempt.run.end() is None and evidence is None:
                attempt.run.abandon()
                message = "it was about to be started when its joblet or what starts its shims died"
                attempt.run.write_end(End(how="lost", finished=self._now(), message=message))
        finally:
            os.close(lock)
        if attempt.run.end() is not None:
            self._ended(attempt)
        else:
            self._running(attempt)
            self._bury(attempt)

    def _find_alive(self, attempt: Attempt) -> None:
        evidence = attempt.run.shim()
        if evidence is None:
            self._look_again_later(attempt)
            return
        self._running(attempt)
        pidfd = leftovers.open_process(evidence.pid, evidence.ticks)
        if pidfd is None:
            self._look_again_later(attempt)
            return
        attempt.pidfd = pidfd
        asyncio.get_running_loop().add_reader(pidfd, self._shim_exited, attempt)
        if attempt.stopping is not None:
            self._ask_to_stop(attempt, attempt.stopping)

    def _look_again_later(self, attempt: Attempt) -> None:
        """A shim that holds its lock is at its very beginning or its very end."""
        asyncio.get_running_loop().call_later(LOOK_AGAIN_SECONDS, self._look_again, attempt)

    def _look_again(self, attempt: Attempt) -> None:
        self._find(attempt)
        self._notice(attempt.subject.fulfilment)

    # What the shims tell

    def _shim_spoke(self, attempt: Attempt, heard: int) -> None:
        try:
            said = os.read(heard, 64)
        except BlockingIOError:
            return
        asyncio.get_running_loop().remove_reader(heard)
        os.close(heard)
        if said and attempt.alive:
            self._running(attempt)
            self._notice(attempt.subject.fulfilment)

    def _shim_exited(self, attempt: Attempt) -> None:
        self._unwatch(attempt)
        self._find(attempt)
        if not attempt.alive:
            self._after_end(attempt)

    def _running(self, attempt: Attempt) -> None:
        evidence = attempt.run.shim()
        attempt.observed = msgspec.structs.replace(
            observed_task(attempt.ref, "Running"),
            started=evidence.started if evidence is not None else "",
            percent=attempt.run.percent(),
        )
        self._tick_later()

    def _ended(self, attempt: Attempt) -> None:
        end = attempt.run.end()
        if end is not None:
            attempt.observed = attempt.run.observe_end(attempt.ref, end)

    def _after_end(self, attempt: Attempt) -> None:
        if attempt in self._dying:
            self._dying.discard(attempt)
            self._graves.add(attempt.run.path)
        self._notice(attempt.subject.fulfilment)

    def _unwatch(self, attempt: Attempt) -> None:
        if attempt.pidfd >= 0:
            asyncio.get_running_loop().remove_reader(attempt.pidfd)
            os.close(attempt.pidfd)
            attempt.pidfd = -1

    def _ask_to_stop(self, attempt: Attempt, stop: Stop) -> None:
        attempt.stopping = stop
        if attempt.pidfd < 0:
            return
        attempt.run.write_stop(stop)
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(attempt.pidfd, signal.SIGTERM)

    # A shim that was killed

    def _bury(self, attempt: Attempt) -> None:
        """The shim died without a word: what is left of the command is killed, then it is called lost."""
        task = asyncio.get_running_loop().create_task(self._kill_leftovers(attempt))
        self._burials.add(task)
        task.add_done_callback(self._burials.discard)

    async def _kill_leftovers(self, attempt: Attempt) -> None:
        evidence = attempt.run.shim()
        if evidence is not None and evidence.boot == self._home.boot:
            mark = f"CONTROLPLANE_PROGRESS={attempt.run.progress}"
            while leftovers.kill_marked(mark):
                await self._clock.sleep(LOOK_AGAIN_SECONDS)
            self._records.append("ended", attempt.subject, pid=evidence.pid)
        message = "its shim was killed" if evidence and evidence.boot == self._home.boot else "the machine restarted"
        started = evidence.started if evidence is not None else ""
        attempt.run.write_end(End(how="lost", started=started, finished=self._now(), message=message))
        self._ended(attempt)
        self._after_end(attempt)

    # Progress

    def _tick_later(self) -> None:
        if not self._ticking:
            self._ticking = True
            asyncio.get_running_loop().call_later(PROGRESS_SECONDS, self._tick)

    def _tick(self) -> None:
        """One timer for all, and none while nothing runs."""
        self._ticking = False
        running = [
            a for attempts in self._attempts.values() for a in attempts.values() if a.observed.phase == "Running"
        ]
        for attempt in running:
            percent = attempt.run.percent()
            if percent != attempt.observed.percent:
                attempt.observed = msgspec.structs.replace(attempt.observed, percent=percent)
                self._notice(attempt.subject.fulfilment)
        if running:
            self._tick_later()

    def _now(self) -> str:
        return times.show(self._clock.wall())
