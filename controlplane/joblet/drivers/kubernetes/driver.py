"""Attempts as pods, one for each fulfilment.

What is seen comes from one list and watch of this target's pods; nothing is asked for twice to see whether it changed.
Promises: for a fulfilment at most one create ever acts (see `creating`); what is not desired is removed, whoever made
it; a pod that ended stays as a tombstone, so that its name cannot be taken again by a create that comes late; what
vanished is lost. A joblet that starts anew learns all of it from the cluster and from its journal.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Coroutine, Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from controlplane.aio.clock import Clock
from controlplane.aio.failpoint import Failpoints
from controlplane.joblet.driver import Notice
from controlplane.joblet.drivers.kubernetes.api import Api, Json
from controlplane.joblet.drivers.kubernetes.capacity import Capacity
from controlplane.joblet.drivers.kubernetes.creating import Creator
from controlplane.joblet.drivers.kubernetes.feed import Feed
from controlplane.joblet.drivers.kubernetes.health import Health
from controlplane.joblet.drivers.kubernetes.journal import Journal, intent_of
from controlplane.joblet.drivers.kubernetes.observing import Stopping, hopeless
from controlplane.joblet.drivers.kubernetes.pod import FULFILMENT, Place, name_of, selector_of
from controlplane.joblet.drivers.kubernetes.removing import Remover
from controlplane.joblet.drivers.kubernetes.runs import Run, Stage, found
from controlplane.joblet.gate import Gate
from controlplane.joblet.home import Folder
from controlplane.joblet.log_source import LogQuery, LogSource
from controlplane.joblet.reconcile import ALIVE, lost
from controlplane.joblet.records import Records, Subject
from controlplane.model.fulfilment import Fulfilment, ObservedTask, TaskRef


@dataclass(frozen=True, slots=True)
class Times:
    """In seconds: how long an ended pod is kept, how long one may wait for what it cannot start without, how long the
    API may be away before the target counts as silent."""

    tombstone: float = 600.0
    start: float = 300.0
    away: float = 10.0


class KubernetesDriver:
    # A pod is stopped as a whole.
    stops_apart = False

    def __init__(
        self,
        target: str,
        api: Api,
        place: Place,
        home: Folder,
        records: Records,
        *,
        clock: Clock,
        times: Times,
        failpoints: Failpoints,
        logs: Callable[[LogQuery], LogSource],
        capacity: Mapping[str, float] | None = None,
    ) -> None:
        self._target = target
        self._clock = clock
        self._times = times
        self._records = records
        self._logs = logs
        self._journal = Journal(home.path)
        self._notice: Notice = lambda identity: None
        self._runs: dict[str, Run] = {}
        self._living = self._dying = 0
        self._tasks: set[asyncio.Task[None]] = set()
        self._timers: dict[str, asyncio.TimerHandle] = {}
        self._failed: asyncio.Future[None] | None = None
        self.gate = Gate(is_open=False)
        self.capacity = Capacity(api, selector_of(target), capacity or {}, clock=clock)
        path = f"/api/v1/namespaces/{place.namespace}/pods"
        self._feed = Feed(api, path, {"labelSelector": selector_of(target)}, self, clock=clock, changed=self._viewed)
        feeds = (self._feed, *self.capacity.feeds)
        self._health = Health(api, self.gate, feeds, known=self.capacity.known, clock=clock, away=times.away)
        self._creator = Creator(
            api,
            place,
            self._journal,
            home,
            clock=clock,
            failpoints=failpoints,
            in_view=lambda: self._feed.following,
            begun=self._begun,
            told=self._told,
        )
        self._remover = Remover(api, place, clock=clock, told=self._told)
        home.when_confirmed(self._creator.wake)

    async def run(self) -> None:
        """Follows the cluster until it is cancelled."""
        self._failed = asyncio.get_running_loop().create_future()
        for intent in self._journal.all():
            self._runs[intent.fulfilment] = run = Run(intent, Stage.UNKNOWN)
            self._count(run)
        parts = [self._feed.run(), self._health.run(), *(feed.run() for feed in self.capacity.feeds)]
        for part in parts:
            self._spawn(part)
        try:
            await self._failed
        finally:
            for timer in self._timers.values():
                timer.cancel()
            for task in list(self._tasks):
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)

    # What the joblet asks

    def attach(self, notice: Notice) -> None:
        self._notice = notice

    def fulfilments(self) -> Collection[str]:
        return [run.id for run in self._runs.values() if not run.dropped]

    def recall(self, fulfilment: Fulfilment) -> None:
        """The journal and the watch tell of everything."""

    def seen(self, fulfilment: str) -> Mapping[TaskRef, ObservedTask]:
        run = self._runs.get(fulfilment)
        return run.observed if run is not None and not run.dropped else {}

    def running(self) -> int:
        return self._living

    def dying(self) -> int:
        return self._dying

    def busy(self) -> bool:
        return self._living + self._dying > 0

    def blocks(self, fulfilment: Fulfilment) -> bool:
        holds = set(fulfilment.holds)
        others = (run for run in self._runs.values() if run.id != fulfilment.id)
        return any(run.alive and holds.intersection(run.intent.holds) for run in others)

    def start(self, fulfilment: Fulfilment, task: TaskRef) -> None:
        """The tasks of a fulfilment that are started together are one pod."""
        run = self._runs.get(fulfilment.id)
        if run is None:
            first = msgspec.structs.replace(fulfilment, tasks=(task,))
            run = self._runs[fulfilment.id] = Run(intent_of(first, files=False), Stage.QUEUED, first)
            self._count(run)
            self._spawn(self._create(run))
        elif run.stage is Stage.QUEUED and not run.intended and not run.dropped and run.fulfilment is not None:
            tasks = tuple(ref for ref in fulfilment.tasks if ref == task or ref in run.observed)
            run.fulfilment = msgspec.structs.replace(fulfilment, tasks=tasks)
            run.observed = Run(intent_of(run.fulfilment, files=False), Stage.QUEUED).observed
            self._count(run)
        else:
            run.observed[task] = lost(task, "its pod was made, or was to be made, before")
            if run.dropped:
                run.dropped = False
                run.doom()
                self._told(run)

    async def _create(self, run: Run) -> None:
        """Begins a turn later, when all tasks that start together are known."""
        await self._creator.create(run)

    def stop(self, fulfilment: str, task: TaskRef, reason: str) -> None:
        self._stop(self._runs[fulfilment], Stopping(reason=reason))

    def logs(self, query: LogQuery) -> LogSource:
        return self._logs(query)

    def drop(self, fulfilment: str) -> None:
        run = self._runs.get(fulfilment)
        if run is None or run.dropped:
            return
        run.dropped = True
        self._count(run)
        self._cancel_timer(run)
        if run.stage is Stage.QUEUED:
            self._creator.never_sent(run)
        else:
            self._bury(run)
        self._creator.wake()

    # What the cluster tells

    def listed(self, found_pods: Mapping[str, Json]) -> None:
        there = {_identity(pod) for pod in found_pods.values()}
        for key, pod in found_pods.items():
            self.put(key, pod)
        for run in list(self._runs.values()):
            if run.id in there:
                continue
            if run.stage is Stage.THERE and run.fed:
                run.lose()
                self._told(run)
            elif run.stage is Stage.THERE:
                self._spawn(self._creator.check(run))
            elif run.stage is Stage.UNKNOWN and run.fulfilment is None and not run.resolving:
                run.resolving = True
                self._spawn(self._creator.resolve(run))

    def put(self, key: str, thing: Json) -> None:
        run = self._runs.get(_identity(thing))
        if run is None:
            run = self._runs[_identity(thing)] = found(thing, _identity(thing), self._target)
        if run.stage in (Stage.GONE, Stage.REFUSED):
            run.doom()
        run.see(thing, fed=True)
        self._told(run)

    def gone(self, key: str, last: Json) -> None:
        run = self._runs.get(_identity(last))
        if run is not None and run.stage is not Stage.GONE:
            run.lose(last)
            self._told(run)

    # What follows

    def _begun(self, run: Run) -> None:
        """Raises OSError when not all of it is on record: then it goes on where it stopped."""
        while run.recorded_starts < len(run.intent.tasks):
            self._records.append("started", _subject(run, run.intent.tasks[run.recorded_starts]), pid=0)
            run.recorded_starts += 1

    def _told(self, run: Run) -> None:
        """Something of the run changed."""
        self._count(run)
        if not run.alive:
            self._record_end(run)
        if run.over:
            self._bury(run)
        elif run.stage is Stage.THERE:
            self._give_up_when_hopeless(run)
            if run.stopping is not None:
                self._remove(run, self._remover.stop, run.stopping)
        self._notice(run.id)

    def _count(self, run: Run) -> None:
        (living, dying), (was_living, was_dying) = run.count(), run.counted
        run.counted = (living, dying)
        self._living += living - was_living
        self._dying += dying - was_dying

    def _stop(self, run: Run, why: Stopping) -> None:
        if run.stopping is not None:
            return
        run.stopping = why
        if run.stage is Stage.QUEUED:
            asyncio.get_running_loop().call_soon(self._creator.never_sent, run)
        elif run.stage is Stage.THERE:
            self._remove(run, self._remover.stop, why)

    def _bury(self, run: Run) -> None:
        """Of one that is no longer desired: killed when it lives, kept for a while when it ended."""
        if run.stage in (Stage.GONE, Stage.REFUSED):
            if run.dropped:
                self._forget(run)
        elif run.stage is Stage.THERE and run.alive:
            self._remove(run, self._remover.remove)
        elif run.stage is Stage.THERE and run.id not in self._timers:
            loop = asyncio.get_running_loop()
            self._timers[run.id] = loop.call_later(self._times.tombstone, self._remove, run, self._remover.remove)

    def _remove(self, run: Run, how: Callable[..., Coroutine[Any, Any, None]], *args: Any) -> None:
        """Once; a stop that is under way is cut short when the run is dropped."""
        if run.removing and not (run.dropped and run.stopping is not None):
            return
        run.removing = True
        if run.dropped:
            run.stopping = None
        self._spawn(how(run, *args))

    def _forget(self, run: Run) -> None:
        if self._runs.get(run.id) is run:
            del self._runs[run.id]
            self._living, self._dying = self._living - run.counted[0], self._dying - run.counted[1]
            run.counted = (0, 0)
        self._cancel_timer(run)
        if run.intent.files:
            self._spawn(self._remover.remove_files(run))
        self._journal.remove(run.id)

    def _give_up_when_hopeless(self, run: Run) -> None:
        assert run.pod is not None
        if (why := hopeless(run.pod, patience_over=False)) is not None:
            self._stop(run, why)
        elif hopeless(run.pod, patience_over=True) is None:
            self._cancel_timer(run)
        elif run.id not in self._timers:
            loop = asyncio.get_running_loop()
            self._timers[run.id] = loop.call_later(self._times.start, self._patience_over, run)

    def _cancel_timer(self, run: Run) -> None:
        if (timer := self._timers.pop(run.id, None)) is not None:
            timer.cancel()

    def _patience_over(self, run: Run) -> None:
        self._timers.pop(run.id, None)
        if run.stage is Stage.THERE and run.pod is not None:
            why = hopeless(run.pod, patience_over=True)
            if why is not None:
                self._stop(run, why)

    def _record_end(self, run: Run) -> None:
        if not run.intended or run.recorded_end:
            return
        run.recorded_end = True
        for ref in run.intent.tasks:
            seen = run.observed.get(ref)
            if seen is not None and seen.phase not in ALIVE:
                self._records.append_later("ended", _subject(run, ref), pid=0, exit_code=seen.exit_code)

    def _viewed(self) -> None:
        self._health.look()
        self._creator.wake()

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._landed)

    def _landed(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if task.cancelled() or self._failed is None or self._failed.done():
            return
        error = task.exception()
        if error is not None:
            self._failed.set_exception(error)


def _identity(pod: Json) -> str:
    """The fulfilment that it is the pod of; one that only claims to be is known by its own name, and not desired."""
    name, claimed = str(pod["metadata"]["name"]), str(pod["metadata"]["labels"].get(FULFILMENT, ""))
    return claimed if name_of(claimed) == name else name


def _subject(run: Run, ref: TaskRef) -> Subject:
    intent = run.intent
    return Subject(intent.order, ref.job, ref.index, ref.attempt, intent.fulfilment, intent.target, intent.holds)
