"""Attempts as pods, one pod for each fulfilment.

The driver learns of pods from one list and watch of this target's pods, and never asks again whether a pod changed.
Promises: for a fulfilment at most one create ever acts (see `pod_creator`); a pod that is not desired is removed,
whoever made it; a pod that ended stays as a tombstone, so that a late create cannot take its name again; a pod that
vanished is lost. A joblet that starts anew learns all of this from the cluster and from its journal.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping

import msgspec

from controlplane.aio.background import BackgroundTasks
from controlplane.aio.clock import Clock
from controlplane.aio.failpoint import Failpoints
from controlplane.joblet.attempt_records import AttemptRecords
from controlplane.joblet.driver import Notice
from controlplane.joblet.drivers.kubernetes.api import Api, Json
from controlplane.joblet.drivers.kubernetes.api_health import ApiHealth
from controlplane.joblet.drivers.kubernetes.cluster_capacity import ClusterCapacity
from controlplane.joblet.drivers.kubernetes.collection_watch import CollectionWatch
from controlplane.joblet.drivers.kubernetes.journal import Journal, intent_of
from controlplane.joblet.drivers.kubernetes.observing import Stopping
from controlplane.joblet.drivers.kubernetes.pod import FULFILMENT, PodDefaults, is_foreign, name_of, selector_of
from controlplane.joblet.drivers.kubernetes.pod_creator import PodCreator
from controlplane.joblet.drivers.kubernetes.pod_remover import PodRemover
from controlplane.joblet.drivers.kubernetes.pod_run import PodRun, RunTable, Stage, run_of_pod
from controlplane.joblet.drivers.kubernetes.pod_supervisor import ClusterTimes, PodSupervisor
from controlplane.joblet.gate import Gate
from controlplane.joblet.joblet_state import JobletFolder
from controlplane.joblet.log_source import LogQuery, LogSource
from controlplane.joblet.reconcile import lost
from controlplane.model.driver_traits import KUBERNETES, traits_of
from controlplane.model.fulfilment import Fulfilment, ObservedTask, TaskRef


class KubernetesDriver:
    traits = traits_of(KUBERNETES)

    def __init__(
        self,
        target: str,
        api: Api,
        defaults: PodDefaults,
        state: JobletFolder,
        records: AttemptRecords,
        *,
        clock: Clock,
        times: ClusterTimes,
        failpoints: Failpoints,
        logs: Callable[[LogQuery], LogSource],
        capacity: Mapping[str, float] | None = None,
    ) -> None:
        self._target = target
        self._state = state
        self._logs = logs
        self._journal = Journal(state.path)
        self._notice: Notice = lambda identity: None
        self._runs = RunTable()
        self._failed: asyncio.Future[None] | None = None
        self._tasks = BackgroundTasks(self._fail)
        self.gate = Gate(is_open=False)
        ours = selector_of(target)
        self.capacity = ClusterCapacity(api, ours, capacity or {}, clock=clock)
        path = f"/api/v1/namespaces/{defaults.namespace}/pods"
        self._pods = CollectionWatch(
            api, path, {"labelSelector": ours}, self, clock=clock, changed=self._followed_or_not
        )
        watches = (self._pods, *self.capacity.watches)
        self._health = ApiHealth(
            api, self.gate, watches, capacity_known=self.capacity.known, clock=clock, away=times.away
        )
        self._supervisor = PodSupervisor(
            self._runs,
            PodRemover(api, defaults, clock=clock, changed=self._changed),
            self._journal,
            records,
            times=times,
            tasks=self._tasks,
            notice=lambda identity: self._notice(identity),
        )
        self._creator = PodCreator(
            api,
            defaults,
            self._journal,
            state,
            clock=clock,
            failpoints=failpoints,
            in_view=lambda: self._pods.following,
            intended=self._supervisor.record_starts,
            changed=self._changed,
        )
        state.when_confirmed(self._creator.wake)

    async def run(self) -> None:
        """Follows the cluster until it is cancelled. Raises the error of the first part that fails."""
        self._failed = asyncio.get_running_loop().create_future()
        for intent in self._journal.all():
            self._runs.add(PodRun(intent, Stage.INHERITED))
        for part in (self._pods, self._health, *self.capacity.watches):
            self._tasks.spawn(part.run())
        try:
            await self._failed
        finally:
            self._supervisor.close()
            await self._tasks.cancel_and_wait()

    def _fail(self, error: BaseException) -> None:
        if self._failed is not None and not self._failed.done():
            self._failed.set_exception(error)

    # Driver

    def attach(self, notice: Notice) -> None:
        self._notice = notice

    def fulfilments(self) -> Collection[str]:
        return [run.id for run in self._runs.all() if not run.dropped]

    def recall(self, fulfilment: Fulfilment) -> None:
        """The journal and the watch show all earlier attempts."""

    def seen(self, fulfilment: str) -> Mapping[TaskRef, ObservedTask]:
        run = self._runs.get(fulfilment)
        return run.observed if run is not None and not run.dropped else {}

    def running(self) -> int:
        return self._runs.living

    def dying(self) -> int:
        return self._runs.dying

    def busy(self) -> bool:
        return self._runs.living + self._runs.dying > 0

    def blocks(self, fulfilment: Fulfilment) -> bool:
        holds = set(fulfilment.holds)
        others = (run for run in self._runs.all() if run.id != fulfilment.id)
        return any(run.alive and holds.intersection(run.intent.holds) for run in others)

    def start(self, fulfilment: Fulfilment, task: TaskRef) -> None:
        """The tasks of a fulfilment that are started together are one pod."""
        run = self._runs.get(fulfilment.id)
        if run is None:
            first = msgspec.structs.replace(fulfilment, tasks=(task,))
            run = self._runs.add(PodRun(intent_of(first, files=False), Stage.QUEUED, first))
            self._tasks.spawn(self._create(run))
        elif run.stage is Stage.QUEUED and not run.dropped:
            tasks = tuple(ref for ref in fulfilment.tasks if ref == task or ref in run.observed)
            run.fulfilment = msgspec.structs.replace(fulfilment, tasks=tasks)
            run.observed = PodRun(intent_of(run.fulfilment, files=False), Stage.QUEUED).observed
            self._runs.count(run)
        else:
            run.observed[task] = lost(task, "its pod was made, or was to be made, before")
            if run.dropped:
                run.dropped = False
                run.mark_ended()
                self._changed(run)

    async def _create(self, run: PodRun) -> None:
        """Begins a turn of the loop later, when all tasks that start together are known."""
        await self._creator.create(run)

    def stop(self, fulfilment: str, task: TaskRef, reason: str) -> None:
        run = self._runs.get(fulfilment)
        assert run is not None
        self._supervisor.stop(run, Stopping(reason=reason))

    def logs(self, query: LogQuery) -> LogSource:
        return self._logs(query)

    def drop(self, fulfilment: str) -> None:
        run = self._runs.get(fulfilment)
        if run is None or run.dropped:
            return
        self._supervisor.drop(run)
        self._creator.wake()

    # CollectionListener

    def listed(self, objects: Mapping[str, Json]) -> None:
        listed = {_identity(pod) for pod in objects.values()}
        for key, pod in objects.items():
            self.put(key, pod)
        for run in self._runs.all():
            if run.id in listed:
                continue
            if run.stage is Stage.WATCHED:
                run.lose()
                self._changed(run)
            elif run.stage is Stage.CONFIRMED:
                self._tasks.spawn(self._creator.check(run))
            elif run.stage is Stage.INHERITED:
                run.stage = Stage.UNKNOWN
                self._tasks.spawn(self._creator.resolve(run))

    def put(self, key: str, thing: Json) -> None:
        identity = _identity(thing)
        if self._runs.get(identity) is None and is_foreign(thing, self._state.cluster):
            return
        run = self._runs.get(identity) or self._runs.add(run_of_pod(thing, identity, self._target))
        if run.stage in (Stage.GONE, Stage.REFUSED):
            run.mark_ended()
        run.see(thing, Stage.WATCHED)
        self._changed(run)

    def gone(self, key: str, last: Json) -> None:
        run = self._runs.get(_identity(last))
        if run is not None and run.stage is not Stage.GONE:
            run.lose(last)
            self._changed(run)

    def _changed(self, run: PodRun) -> None:
        self._supervisor.changed(run)

    def _followed_or_not(self) -> None:
        self._health.look()
        self._creator.wake()


def _identity(pod: Json) -> str:
    """The fulfilment that the pod belongs to. A pod that only claims to belong to one goes by its own name, which is no
    desired fulfilment."""
    name, claimed = str(pod["metadata"]["name"]), str(pod["metadata"]["labels"].get(FULFILMENT, ""))
    return claimed if name_of(claimed) == name else name
