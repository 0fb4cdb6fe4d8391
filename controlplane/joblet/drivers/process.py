"""Attempts as child processes that outlive the joblet, each under a shim and in a folder of its own.

Promises: an attempt is spawned at most once, because its folder can be made only once; a joblet that starts again
adopts what lives, reports what ended meanwhile, and calls lost what left no evidence; nothing that holds a unique
resource is called ended before all of its processes are gone.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import signal
from collections.abc import Callable, Collection, Mapping

import msgspec
import structlog

from controlplane.aio.clock import Clock
from controlplane.joblet import task_files
from controlplane.joblet.driver import Notice
from controlplane.joblet.drivers import leftovers
from controlplane.joblet.drivers.attempt import TROUBLE_SECONDS, Attempt, patience_seconds
from controlplane.joblet.drivers.burials import Burials
from controlplane.joblet.drivers.graveyard import TOMBSTONE_SECONDS, Graveyard
from controlplane.joblet.drivers.progress_reader import ProgressReader
from controlplane.joblet.drivers.run_log import RunLog
from controlplane.joblet.drivers.rundir import End, RunDir, Stop, folder_name
from controlplane.joblet.drivers.spawner import Spawner
from controlplane.joblet.drivers.starter import Starter
from controlplane.joblet.home import Folder
from controlplane.joblet.log_source import LogQuery, LogSource
from controlplane.joblet.reconcile import lost, observed_task
from controlplane.joblet.records import Records, subject_of
from controlplane.joblet.settings import OUTPUT_LIMIT
from controlplane.model import times
from controlplane.model.errors import NotFound
from controlplane.model.fulfilment import Fulfilment, ObservedTask, TaskRef

LOOK_AGAIN_SECONDS = 0.02
# After so many looks a shim that writes no evidence is not at its beginning any more.
MOST_LOOKS = 25
log = structlog.get_logger()


class ProcessDriver:
    stops_apart = True
    gate = None
    capacity = None

    def __init__(
        self,
        home: Folder,
        records: Records,
        environment: Mapping[str, str],
        *,
        clock: Clock,
        nice: int = 0,
        output_limit: int = OUTPUT_LIMIT,
        descriptors: int = 0,
    ) -> None:
        """`descriptors`: how many a command may have, 0 for as many as this process."""
        self._home = home
        self._clock = clock
        self._notice: Notice = lambda identity: None
        self._attempts: dict[str, dict[TaskRef, Attempt]] = {}
        self._dying: set[Attempt] = set()
        self._graves = Graveyard(clock)
        # Names of folders of ended attempts that were found at the start and not read since.
        self._tombstones: set[str] = set()
        # Names of folders of attempts that an earlier life started, and that their own commands took away.
        self._vanished: set[str] = set()
        self._records = records
        self._burials = Burials(records, home.boot, clock=clock, told=self.tell)
        self._progress = ProgressReader(self._all, self._advance, self._look)
        self._runs = home.path / "runs"
        self._runs.mkdir(exist_ok=True)
        self._spawner = Spawner(home.path, environment, self._watch)
        options = {"nice": nice, "output_limit": output_limit, "descriptors": descriptors}
        self._starter = Starter(home, self._spawner, environment, options, self, clock=clock)

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
        give_up_at = self._clock.monotonic() + patience_seconds(task.attempt)
        attempt = Attempt(self._run_of(fulfilment.order, task), subject, observed_task(task, "Starting"), give_up_at)
        self._attempts.setdefault(fulfilment.id, {})[task] = attempt
        if attempt.run.path.name in self._vanished:
            self._burials.bury(attempt)
        else:
            self._starter.begin(attempt, fulfilment)
        self._progress.watch()

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
        if not task_files.holds(run.path):
            kept = f"{TOMBSTONE_SECONDS / 60:g} minutes"
            raise NotFound(f"nothing is kept of it any more: output is kept for {kept} after the end")
        return RunLog(run, query)

    def _run_of(self, order: str, task: TaskRef) -> RunDir:
        return RunDir(self._runs / folder_name(order, task))

    # Adopting

    def adopt(self) -> None:
        """Finds what earlier lives of this joblet started and what may still live. Needs the running loop.

        Of what has ended there may be tens of thousands, which nobody desires: they are tombstones until `recall`.
        """
        try:
            self._spawner.open()
        except OSError as error:
            log.warning("no shim can be started", error=str(error))
        names = sorted(os.listdir(self._runs))
        self._vanished = {folder_name(*started) for started in self._records.last_started()}.difference(names)
        for name in names:
            run = RunDir(self._runs / name)
            if task_files.holds(run.path, "end.json"):
                self._graves.add(run.path)
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
        spec = run.spec()
        if spec is None:
            self._graves.add(run.path)
            return
        self._graves.remove(run.path)
        attempt = Attempt(run, spec.subject, observed_task(spec.subject.ref, "Starting"))
        self._attempts.setdefault(spec.subject.fulfilment, {})[attempt.ref] = attempt
        self._find(attempt)

    def close(self) -> None:
        """Stops watching. The commands go on."""
        for attempt in self._all():
            self._unwatch(attempt)
            attempt.cancel_timer()
        self._burials.close()
        self._progress.close()
        self._spawner.close()

    def _all(self) -> list[Attempt]:
        return [*self._dying, *(a for attempts in self._attempts.values() for a in attempts.values())]

    def _watch(self, descriptor: int, watched: bool) -> None:
        loop = asyncio.get_running_loop()
        if watched:
            loop.add_reader(descriptor, self._spawner.hear)
        else:
            loop.remove_reader(descriptor)

    # Once it was begun, or was not

    def begun_before(self, attempt: Attempt) -> None:
        self._find_or_later(attempt)

    def ended_at_once(self, attempt: Attempt) -> None:
        self._ended(attempt)

    def shim_born(self, attempt: Attempt, pidfd: int | None) -> None:
        if pidfd is None:
            self._look(attempt)
        else:
            self._follow(attempt, pidfd)

    def shim_spoke(self, attempt: Attempt) -> None:
        try:
            self._running(attempt)
        except OSError:
            attempt.observed = observed_task(attempt.ref, "Running")
        self._notice(attempt.subject.fulfilment)

    def make_room(self) -> None:
        self._graves.make_room()

    def tell(self, attempt: Attempt) -> None:
        """Also of one that was dropped: who waits for its death hears of it."""
        if not attempt.alive and attempt in self._dying:
            self._dying.discard(attempt)
            self._graves.add(attempt.run.path)
        self._notice(attempt.subject.fulfilment)

    # Looking at what was begun

    def _look(self, attempt: Attempt) -> None:
        self._find_or_later(attempt)
        self.tell(attempt)

    def _find_or_later(self, attempt: Attempt) -> None:
        """Whatever keeps it from being looked at now, it is looked at again."""
        attempt.timer = None
        try:
            self._find(attempt)
        except OSError as error:
            log.warning("an attempt is looked at again later", run=attempt.run.path.name, error=str(error))
            self._look_later(attempt, TROUBLE_SECONDS)

    def _look_later(self, attempt: Attempt, seconds: float = LOOK_AGAIN_SECONDS) -> None:
        attempt.cancel_timer()
        attempt.timer = asyncio.get_running_loop().call_later(seconds, self._look, attempt)

    def _find(self, attempt: Attempt) -> None:
        """Learns from the folder alone what became of an attempt that was begun before."""
        spec = attempt.run.spec()
        if spec is not None and spec.subject.fulfilment != attempt.subject.fulfilment:
            attempt.observed = lost(attempt.ref, f"it was begun before for fulfilment {spec.subject.fulfilment}")
        elif attempt.run.end() is not None:
            self._ended(attempt)
        else:
            self._find_shim(attempt)

    def _find_shim(self, attempt: Attempt) -> None:
        try:
            lock = attempt.run.try_lock()
        except OSError as error:
            if task_files.is_exhausted(error.errno):
                raise
            # The command took away what its shim locked: only the shim's process can tell.
            attempt.looks = MOST_LOOKS
            self._find_alive(attempt, otherwise=self._burials.bury)
            return
        if lock is not None:
            self._find_dead(attempt, lock)
        else:
            self._find_alive(attempt, otherwise=self._look_later)

    def _find_dead(self, attempt: Attempt, lock: int) -> None:
        evidence = attempt.run.shim()
        try:
            if attempt.run.end() is None and evidence is None and attempt.observed.phase == "Starting":
                self._never_began(attempt)
                return
        finally:
            os.close(lock)
        if attempt.run.end() is not None:
            self._ended(attempt)
        else:
            self._burials.bury(attempt)

    def _never_began(self, attempt: Attempt) -> None:
        """Only while holding the lock. A shim that was made, and is gone, could not even write that it began."""
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

    def _find_alive(self, attempt: Attempt, *, otherwise: Callable[[Attempt], None]) -> None:
        """A shim that holds its lock and shows no process is at its very beginning or its very end; or its command took
        away what it wrote, and it is looked for among all processes."""
        evidence = attempt.run.shim()
        if evidence is not None:
            pidfd = leftovers.open_process(evidence.pid, evidence.ticks)
        else:
            attempt.looks += 1
            pidfd = leftovers.open_shim(attempt.run.path) if attempt.looks > MOST_LOOKS else None
        if evidence is not None or pidfd is not None:
            self._running(attempt)
        if pidfd is None:
            otherwise(attempt)
        else:
            self._follow(attempt, pidfd)

    def _follow(self, attempt: Attempt, pidfd: int) -> None:
        attempt.pidfd = pidfd
        asyncio.get_running_loop().add_reader(pidfd, self._shim_exited, attempt)
        if attempt.stopping is not None:
            self._ask_to_stop(attempt, attempt.stopping)

    # What the shims tell

    def _shim_exited(self, attempt: Attempt) -> None:
        self._unwatch(attempt)
        self._look(attempt)

    def _running(self, attempt: Attempt) -> None:
        evidence = attempt.run.shim()
        attempt.observed = msgspec.structs.replace(
            observed_task(attempt.ref, "Running"),
            started=evidence.started if evidence is not None else "",
            percent=attempt.run.percent(),
        )
        self._progress.watch()

    def _ended(self, attempt: Attempt) -> None:
        end = attempt.run.end()
        if end is not None:
            attempt.observed = attempt.run.observe_end(attempt.ref, end, attempt.stopping)

    def _unwatch(self, attempt: Attempt) -> None:
        if attempt.pidfd >= 0:
            asyncio.get_running_loop().remove_reader(attempt.pidfd)
            os.close(attempt.pidfd)
            attempt.pidfd = -1

    def _ask_to_stop(self, attempt: Attempt, stop: Stop) -> None:
        """Again, until it works or the attempt has ended. One that was not spawned yet has ended now."""
        attempt.stopping = stop
        if not attempt.alive or attempt.buried or attempt.awaited:
            return
        if attempt.waits_for_room:
            attempt.cancel_timer()
            attempt.waits_for_room = False
            attempt.observed = observed_task(attempt.ref, "Cancelled", reason=stop.reason)
            asyncio.get_running_loop().call_soon(self.tell, attempt)
            return
        try:
            attempt.run.write_stop(stop)
        except OSError as error:
            log.warning("the wish to stop cannot be written", run=attempt.run.path.name, error=str(error))
            asyncio.get_running_loop().call_later(TROUBLE_SECONDS, self._ask_to_stop, attempt, stop)
        self._terminate(attempt)

    def _terminate(self, attempt: Attempt) -> None:
        """Without a descriptor of the shim it is looked for, and asked once it is found."""
        if attempt.pidfd < 0:
            if attempt.timer is None:
                self._look_later(attempt)
            return
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(attempt.pidfd, signal.SIGTERM)

    # Progress

    def _advance(self, attempt: Attempt, percent: int | None) -> None:
        if attempt.observed.phase == "Running" and percent != attempt.observed.percent:
            attempt.observed = msgspec.structs.replace(attempt.observed, percent=percent)
            self._notice(attempt.subject.fulfilment)
