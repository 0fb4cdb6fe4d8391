"""Creates pods, each at most once.

For one pod, in this order: the session is confirmed and the pods of the cluster are in view; the intent is on disk; one
create is sent. The create is sent again only when the API certainly did not act on it. When the outcome is unknown, the
creator looks for the pod until it shows, or until the create can no longer act; then the attempt is lost. Neither this
joblet nor a later one ever sends another create for the same fulfilment.
"""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Callable

import structlog

from controlplane.aio.clock import Clock
from controlplane.aio.failpoint import Failpoints
from controlplane.joblet.drivers.kubernetes.api import Answered, Api, ApiRetries, Json
from controlplane.joblet.drivers.kubernetes.journal import Journal, intent_of
from controlplane.joblet.drivers.kubernetes.pod import FULFILMENT, PodDefaults, files_of, name_of, pod_of
from controlplane.joblet.drivers.kubernetes.pod_run import PodRun, Stage
from controlplane.joblet.joblet_state import JobletState
from controlplane.joblet.reconcile import observed_task
from controlplane.model.errors import ControlPlaneError, Invalid, OutcomeUnknown, Unavailable
from controlplane.model.task import AttemptPhase

# Creates that are under way at the same time.
SLOTS = 32
# How long the API may take beyond its own time-out to let go of a request.
MARGIN_SECONDS = 1.0
log = structlog.get_logger(__name__)


class PodCreator:
    """`in_view` says whether the watch of the pods is up to date; `changed` is called when a run changed.

    `intended` is called when the intent of a run is on disk, and raises OSError when the run must not go on yet.
    """

    def __init__(
        self,
        api: Api,
        defaults: PodDefaults,
        journal: Journal,
        state: JobletState,
        *,
        clock: Clock,
        failpoints: Failpoints,
        in_view: Callable[[], bool],
        intended: Callable[[PodRun], None],
        changed: Callable[[PodRun], None],
    ) -> None:
        self._api = api
        self._defaults = defaults
        self._journal = journal
        self._state = state
        self._clock = clock
        self._failpoints = failpoints
        self._in_view = in_view
        self._intended = intended
        self._changed = changed
        self._slots = asyncio.Semaphore(SLOTS)
        self._news = asyncio.Event()

    def wake(self) -> None:
        """The session was confirmed, the pods came into view, or a run is no longer wanted."""
        news, self._news = self._news, asyncio.Event()
        news.set()

    async def create(self, run: PodRun) -> None:
        """Returns when the pod exists, or certainly does not and will not."""
        assert run.fulfilment is not None
        try:
            defaults = dataclasses.replace(self._defaults, cluster=self._state.cluster)
            pod = pod_of(run.fulfilment, defaults)
            files = files_of(run.fulfilment, defaults)
        except Invalid as error:
            self._refuse(run, str(error))
            return
        async with self._slots:
            await self._create(run, pod, files)
        if run.stage is Stage.UNKNOWN:
            await self.resolve(run)

    async def _create(self, run: PodRun, pod: Json, files: Json | None) -> None:
        retries = ApiRetries()
        while await self._may_create(run):
            try:
                self._intend(run, files=files is not None)
            except OSError as error:
                # A create is sent only when the next joblet would know of it.
                log.warning("a pod waits for room in the joblet's folder", fulfilment=run.id, error=str(error))
                await self._clock.sleep(retries.failed())
                continue
            try:
                if files is not None:
                    await self._put_files(files)
                    files = None
                    continue
                created = await self._send(run, pod)
            except Answered as error:
                if not run.unsent:
                    return  # the outcome is unknown, or the watch has shown the pod
                if not error.waiting_helps:
                    self._refuse(run, str(error))
                    return
                await self._clock.sleep(retries.failed(error))
            except Unavailable as error:
                await self._clock.sleep(retries.failed(error))
            except OutcomeUnknown as error:
                log.warning("the outcome of a create is unknown", fulfilment=run.id, error=str(error))
                return
            else:
                self._confirm(run, created)
                return
        if run.unsent:
            run.never_sent()
            self._changed(run)

    async def _send(self, run: PodRun, pod: Json) -> Json:
        """Leaves the run UNKNOWN, unless the API certainly did not act."""
        run.stage = Stage.UNKNOWN
        self._failpoints.reach("joblet.before-create")
        try:
            created = await self._api.ask("POST", self._pods, pod)
        except Answered as error:
            if error.certainly_not_applied and error.reason != "AlreadyExists" and run.unknown:
                run.stage = Stage.INTENDED
            raise
        except Unavailable:
            run.stage = Stage.INTENDED
            raise
        self._failpoints.reach("joblet.after-create")
        return created

    async def resolve(self, run: PodRun) -> None:
        """Looks for the pod until the outcome of a create that was sent before now is known; the watch may be first."""
        settled_at = self._clock.monotonic() + self._api.seconds + MARGIN_SECONDS
        retries = ApiRetries()
        while run.unknown:
            asked_at = self._clock.monotonic()
            pod = await self._look(run)
            if self._settle(run, pod, late=asked_at >= settled_at):
                return
            left = settled_at - self._clock.monotonic()
            pause = retries.failed()
            await self._clock.sleep(min(pause, max(left, 0.01)) if left > 0 else pause)

    def _settle(self, run: PodRun, pod: Json | None, *, late: bool) -> bool:
        """Whether the outcome is known now; `late` when the create could not act any more as the API was asked."""
        if not run.unknown:
            return True
        if pod:
            self._confirm_own(run, pod)
        elif pod is not None and late:
            run.never_came()
            self._changed(run)
        return not run.unknown

    async def _look(self, run: PodRun) -> Json | None:
        """The pod; empty when it does not exist, None when the API cannot tell."""
        try:
            return await self._api.ask("GET", f"{self._pods}/{name_of(run.id)}")
        except Answered as error:
            return {} if error.status == 404 else None
        except (Unavailable, OutcomeUnknown):
            return None

    async def check(self, run: PodRun) -> None:
        """Whether a CONFIRMED pod that a list did not show still exists."""
        while run.stage is Stage.CONFIRMED:
            pod = await self._look(run)
            if pod is not None:
                if not pod and run.stage is Stage.CONFIRMED:
                    run.lose()
                    self._changed(run)
                return
            await self._clock.sleep(ApiRetries().failed())

    async def _put_files(self, files: Json) -> None:
        """Idempotent: the name belongs to the fulfilment, so an existing Secret has the same content."""
        try:
            await self._api.ask("POST", f"/api/v1/namespaces/{self._defaults.namespace}/secrets", files)
        except Answered as error:
            if error.reason != "AlreadyExists":
                raise _retryable(error) from None
        except OutcomeUnknown as error:
            raise Unavailable(str(error)) from None

    def _confirm_own(self, run: PodRun, pod: Json) -> None:
        if pod["metadata"].get("labels", {}).get(FULFILMENT) == run.id:
            self._confirm(run, pod)
        else:
            self._refuse(run, f"pod {pod['metadata']['name']} is there already, and not ours")

    def _confirm(self, run: PodRun, pod: Json) -> None:
        """An answer is older than the pod that the watch has shown meanwhile."""
        if run.unknown:
            run.see(pod, Stage.CONFIRMED)
        self._changed(run)

    def _refuse(self, run: PodRun, why: str) -> None:
        failed = (observed_task(ref, AttemptPhase.FAILED, reason="StartError", message=why) for ref in run.observed)
        run.end(Stage.REFUSED, list(failed))
        self._changed(run)

    def _intend(self, run: PodRun, *, files: bool) -> None:
        """Raises OSError when intent and records are not all on disk; the part that is there is not written again."""
        if run.stage is Stage.QUEUED:
            assert run.fulfilment is not None
            intent = intent_of(run.fulfilment, files=files)
            self._journal.write(intent)
            run.intend(intent)
        self._intended(run)

    async def _may_create(self, run: PodRun) -> bool:
        """True as soon as a pod may be created for the run; False when the run is no longer wanted."""
        while not run.unwanted:
            if self._clock.monotonic() < self._state.confirmed_until and self._in_view():
                return True
            await self._news.wait()
        return False

    @property
    def _pods(self) -> str:
        return f"/api/v1/namespaces/{self._defaults.namespace}/pods"


def _retryable(error: Answered) -> ControlPlaneError:
    return error if error.certainly_not_applied else Unavailable(str(error))
