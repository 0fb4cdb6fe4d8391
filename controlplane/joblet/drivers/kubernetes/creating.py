"""Makes pods, each at most once.

The order of things for one pod: the session is still confirmed and the cluster is in view; the intent is on disk; one
create is sent. It is sent again only when the API certainly did not act on it. When nobody knows, the pod is looked
for until it shows, or until the create cannot act any more, and then the attempt is lost: it is never sent again,
neither here nor by the joblet's next life.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import structlog

from controlplane.aio.clock import Clock
from controlplane.aio.failpoint import Failpoints
from controlplane.joblet.drivers.kubernetes.api import Answered, Api, Json
from controlplane.joblet.drivers.kubernetes.journal import Journal, intent_of
from controlplane.joblet.drivers.kubernetes.patience import Patience
from controlplane.joblet.drivers.kubernetes.pod import FULFILMENT, Place, files_of, name_of, pod_of
from controlplane.joblet.drivers.kubernetes.runs import Run, Stage
from controlplane.joblet.home import Home
from controlplane.joblet.reconcile import observed_task
from controlplane.model.errors import ControlPlaneError, Invalid, OutcomeUnknown, Unavailable

# Creates that are under way at the same time.
SLOTS = 32
# What the API may take beyond its own time-out to let go of a request.
MARGIN_SECONDS = 1.0
log = structlog.get_logger()

Told = Callable[[Run], None]


class Creator:
    """`in_view` says whether the cluster's pods are known; `told` is called when something of a run changed."""

    def __init__(
        self,
        api: Api,
        place: Place,
        journal: Journal,
        home: Home,
        *,
        clock: Clock,
        failpoints: Failpoints,
        in_view: Callable[[], bool],
        begun: Told,
        told: Told,
    ) -> None:
        self._api = api
        self._place = place
        self._journal = journal
        self._home = home
        self._clock = clock
        self._failpoints = failpoints
        self._in_view = in_view
        self._begun = begun
        self._told = told
        self._slots = asyncio.Semaphore(SLOTS)
        self._news = asyncio.Event()

    def wake(self) -> None:
        """The session was confirmed, the cluster came into view, or somebody is no longer wanted."""
        news, self._news = self._news, asyncio.Event()
        news.set()

    async def create(self, run: Run) -> None:
        """Returns when the pod is there, or certainly is not and will not be."""
        assert run.fulfilment is not None
        try:
            pod = pod_of(run.fulfilment, self._place)
            files = files_of(run.fulfilment, self._place)
        except Invalid as error:
            self._refuse(run, str(error))
            return
        async with self._slots:
            await self._make(run, pod, files)
        if run.stage is Stage.UNKNOWN:
            await self.resolve(run)

    async def _make(self, run: Run, pod: Json, files: Json | None) -> None:
        patience = Patience()
        while await self._fresh(run):
            try:
                self._intend(run, files=files is not None)
            except OSError as error:
                # Nothing is asked for that the joblet's next life would not know of.
                log.warning("a pod waits for room in the joblet's folder", fulfilment=run.id, error=str(error))
                await self._clock.sleep(patience.failure())
                continue
            try:
                if files is not None:
                    await self._put_files(files)
                    files = None
                    continue
                made = await self._send(run, pod)
            except Answered as error:
                if run.stage is not Stage.QUEUED:
                    return  # nobody knows, or the watch already does
                if not error.waiting_helps:
                    self._refuse(run, str(error))
                    return
                await self._clock.sleep(patience.failure(error))
            except Unavailable as error:
                await self._clock.sleep(patience.failure(error))
            except OutcomeUnknown as error:
                log.warning("nobody knows whether a pod was made", fulfilment=run.id, error=str(error))
                return
            else:
                self._see(run, made)
                return
        if run.stage is Stage.QUEUED:
            self.never_sent(run)

    async def _send(self, run: Run, pod: Json) -> Json:
        """Afterwards the run is UNKNOWN, unless the API said that it did nothing."""
        run.stage = Stage.UNKNOWN
        self._failpoints.reach("joblet.before-create")
        try:
            made = await self._api.ask("POST", self._pods, pod)
        except Answered as error:
            if error.certainly_not_applied and error.reason != "AlreadyExists" and run.unknown:
                run.stage = Stage.QUEUED
            raise
        except Unavailable:
            run.stage = Stage.QUEUED
            raise
        self._failpoints.reach("joblet.after-create")
        return made

    async def resolve(self, run: Run) -> None:
        """Looks until it is known what became of a create that was sent before now; the watch may know it first."""
        settled_at = self._clock.monotonic() + self._api.seconds + MARGIN_SECONDS
        patience = Patience()
        while run.unknown:
            asked_at = self._clock.monotonic()
            found = await self._look(run)
            if self._settle(run, found, late=asked_at >= settled_at):
                return
            left = settled_at - self._clock.monotonic()
            pause = patience.failure()
            await self._clock.sleep(min(pause, max(left, 0.01)) if left > 0 else pause)

    def _settle(self, run: Run, found: Json | None, *, late: bool) -> bool:
        """Whether it is known now; `late` when a create could not act any more by the time the API was asked."""
        if not run.unknown:
            return True
        if found:
            self._found(run, found)
        elif found is not None and late:
            run.never_came()
            self._told(run)
        return not run.unknown

    async def _look(self, run: Run) -> Json | None:
        """The pod; empty when it is not there, None when the API does not say."""
        try:
            return await self._api.ask("GET", f"{self._pods}/{name_of(run.id)}")
        except Answered as error:
            return {} if error.status == 404 else None
        except (Unavailable, OutcomeUnknown):
            return None

    async def check(self, run: Run) -> None:
        """Whether a pod that the API confirmed is still there, when the watch has not told of it."""
        while run.stage is Stage.THERE and not run.fed:
            found = await self._look(run)
            if found is not None:
                if not found and run.stage is Stage.THERE and not run.fed:
                    run.lose()
                    self._told(run)
                return
            await self._clock.sleep(Patience().failure())

    async def _put_files(self, files: Json) -> None:
        """Asked for twice they are the same; a name that is taken is taken by this fulfilment."""
        try:
            await self._api.ask("POST", f"/api/v1/namespaces/{self._place.namespace}/secrets", files)
        except Answered as error:
            if error.reason != "AlreadyExists":
                raise _again(error) from None
        except OutcomeUnknown as error:
            raise Unavailable(str(error)) from None

    def _found(self, run: Run, pod: Json) -> None:
        if pod["metadata"].get("labels", {}).get(FULFILMENT) == run.id:
            self._see(run, pod)
        else:
            self._refuse(run, f"pod {pod['metadata']['name']} is there already, and not ours")

    def _see(self, run: Run, pod: Json) -> None:
        """An answer is older than what the watch told meanwhile."""
        if run.stage is Stage.UNKNOWN:
            run.see(pod, fed=False)
        self._told(run)

    def _refuse(self, run: Run, why: str) -> None:
        run.end(Stage.REFUSED, [observed_task(ref, "Failed", reason="StartError", message=why) for ref in run.observed])
        self._told(run)

    def never_sent(self, run: Run) -> None:
        """Of what is queued nothing was sent, and now nothing will be."""
        reason = run.stopping.reason if run.stopping is not None else ""
        run.end(Stage.GONE, [observed_task(ref, "Cancelled", reason=reason) for ref in run.observed])
        self._told(run)

    def _intend(self, run: Run, *, files: bool) -> None:
        """Raises OSError when it is not all on disk; what is there already is not written again."""
        if not run.intended:
            assert run.fulfilment is not None
            intent = intent_of(run.fulfilment, files=files)
            self._journal.write(intent)
            run.intended, run.intent = True, intent
        self._begun(run)

    async def _fresh(self, run: Run) -> bool:
        """True as soon as a pod may be made for it; False when nobody wants it any more."""
        while not run.unwanted:
            if self._clock.monotonic() < self._home.until and self._in_view():
                return True
            await self._news.wait()
        return False

    @property
    def _pods(self) -> str:
        return f"/api/v1/namespaces/{self._place.namespace}/pods"


def _again(error: Answered) -> ControlPlaneError:
    """Files are the same however often they are put: what nobody knows is tried again."""
    return error if error.certainly_not_applied else Unavailable(str(error))
