"""Takes pods away, and what goes with them. Asked again it changes nothing, so it asks until the API has it."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import structlog

from controlplane.aio.clock import Clock
from controlplane.joblet.drivers.kubernetes.api import Answered, Api, Json
from controlplane.joblet.drivers.kubernetes.observing import STOPPING, Stopping
from controlplane.joblet.drivers.kubernetes.patience import Patience
from controlplane.joblet.drivers.kubernetes.pod import Place, name_of
from controlplane.joblet.drivers.kubernetes.runs import Run, Stage
from controlplane.model.errors import OutcomeUnknown, Unavailable

# The least that lets the node confirm the end: without any the API would forget a pod that may still run.
AT_ONCE_SECONDS = 1
log = structlog.get_logger()


class Remover:
    def __init__(self, api: Api, place: Place, *, clock: Clock, told: Callable[[Run], None]) -> None:
        self._api = api
        self._place = place
        self._clock = clock
        self._told = told

    async def stop(self, run: Run, why: Stopping) -> None:
        """Politely, as the pod itself says how long that may take; the reason is noted at the pod first."""
        note = {"metadata": {"annotations": {STOPPING: msgspec.json.encode(why).decode()}}}
        if await self._insist(run, "PATCH", note):
            await self._insist(run, "DELETE", {})

    async def remove(self, run: Run) -> None:
        await self._insist(run, "DELETE", {"gracePeriodSeconds": AT_ONCE_SECONDS})

    async def remove_files(self, run: Run) -> None:
        path = f"/api/v1/namespaces/{self._place.namespace}/secrets/{name_of(run.id)}"
        patience = Patience()
        while True:
            try:
                await self._api.ask("DELETE", path)
            except Answered as error:
                if error.status in (403, 404):
                    return
                await self._clock.sleep(patience.failure(error))
            except (Unavailable, OutcomeUnknown) as error:
                await self._clock.sleep(patience.failure(error))
            else:
                return

    async def _insist(self, run: Run, method: str, body: Json) -> bool:
        """False when the pod is gone."""
        patience = Patience()
        while run.stage is Stage.THERE:
            try:
                await self._api.ask(method, self._path(run), body)
            except Answered as error:
                if error.status == 404:
                    self._lost(run)
                    return False
                if error.certainly_not_applied and not error.waiting_helps:
                    log.warning("a pod cannot be removed", fulfilment=run.id, error=str(error))
                await self._clock.sleep(patience.failure(error))
            except (Unavailable, OutcomeUnknown) as error:
                await self._clock.sleep(patience.failure(error))
            else:
                return True
        return False

    def _lost(self, run: Run) -> None:
        if run.stage is Stage.THERE:
            run.lose()
            self._told(run)

    def _path(self, run: Run) -> str:
        return f"/api/v1/namespaces/{self._place.namespace}/pods/{run.name}"
