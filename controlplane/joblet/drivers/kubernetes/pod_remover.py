"""Removes pods and their Secrets. A repeated removal changes nothing, so each is sent until the API has accepted it."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import structlog

from controlplane.aio.clock import Clock
from controlplane.joblet.drivers.kubernetes.api import Answered, Api, ApiRetries, Json
from controlplane.joblet.drivers.kubernetes.observing import STOPPING, Stopping
from controlplane.joblet.drivers.kubernetes.pod import PodDefaults, name_of
from controlplane.joblet.drivers.kubernetes.pod_run import PodRun
from controlplane.model.errors import OutcomeUnknown, Unavailable

# The least that lets the node confirm the end: without any grace the API would forget a pod that may still run.
AT_ONCE_SECONDS = 1
log = structlog.get_logger(__name__)


class PodRemover:
    def __init__(self, api: Api, defaults: PodDefaults, *, clock: Clock, changed: Callable[[PodRun], None]) -> None:
        self._api = api
        self._defaults = defaults
        self._clock = clock
        self._changed = changed

    async def stop(self, run: PodRun, why: Stopping) -> None:
        """Deletes the pod with the grace that it names itself, after the reason was noted at the pod."""
        note = {"metadata": {"annotations": {STOPPING: msgspec.json.encode(why).decode()}}}
        if await self._insist(run, "PATCH", note):
            await self._insist(run, "DELETE", {})

    async def remove(self, run: PodRun) -> None:
        await self._insist(run, "DELETE", {"gracePeriodSeconds": AT_ONCE_SECONDS})

    async def remove_files(self, run: PodRun) -> None:
        path = f"/api/v1/namespaces/{self._defaults.namespace}/secrets/{name_of(run.id)}"
        retries = ApiRetries()
        while True:
            try:
                await self._api.ask("DELETE", path)
            except Answered as error:
                if error.status in (403, 404):
                    return
                await self._clock.sleep(retries.failed(error))
            except (Unavailable, OutcomeUnknown) as error:
                await self._clock.sleep(retries.failed(error))
            else:
                return

    async def _insist(self, run: PodRun, method: str, body: Json) -> bool:
        """False when the pod is gone."""
        retries = ApiRetries()
        while run.there:
            try:
                await self._api.ask(method, self._path(run), body)
            except Answered as error:
                if error.status == 404:
                    self._lost(run)
                    return False
                if error.certainly_not_applied and not error.waiting_helps:
                    log.warning("a pod cannot be removed", fulfilment=run.id, error=str(error))
                await self._clock.sleep(retries.failed(error))
            except (Unavailable, OutcomeUnknown) as error:
                await self._clock.sleep(retries.failed(error))
            else:
                return True
        return False

    def _lost(self, run: PodRun) -> None:
        if run.there:
            run.lose()
            self._changed(run)

    def _path(self, run: PodRun) -> str:
        return f"/api/v1/namespaces/{self._defaults.namespace}/pods/{run.pod_name}"
