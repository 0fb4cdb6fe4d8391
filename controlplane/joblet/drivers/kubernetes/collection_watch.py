"""Follows one collection of the cluster's API: a list, then watches from there on, until the task is cancelled.

A watch that ends or breaks goes on after the last event that arrived. The collection is listed again only when the API
no longer knows that event, never just to see whether an object changed.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Mapping
from typing import Protocol

import structlog

from controlplane.aio.clock import Clock
from controlplane.joblet.drivers.kubernetes.api import Answered, Api, ApiRetries, Json
from controlplane.model.errors import Compacted, ControlPlaneError, OutcomeUnknown, Unavailable

WATCH_SECONDS = 240.0
log = structlog.get_logger(__name__)


class CollectionListener(Protocol):
    def listed(self, objects: Mapping[str, Json]) -> None:
        """All objects by namespace and name; an object of before that is missing here is gone."""

    def put(self, key: str, thing: Json) -> None: ...

    def gone(self, key: str, last: Json) -> None: ...


class CollectionWatch:
    """`following` says whether the API serves the watch right now; `changed` is called when that changes."""

    def __init__(
        self,
        api: Api,
        path: str,
        query: Mapping[str, str],
        listener: CollectionListener,
        *,
        clock: Clock,
        changed: Callable[[], None],
    ) -> None:
        self._api = api
        self._path = path
        self._query = dict(query)
        self._listener = listener
        self._clock = clock
        self._changed = changed
        self._since = ""
        self._retries = ApiRetries()
        self._turn: asyncio.Task[None] | None = None
        self.following = False

    async def run(self) -> None:
        while True:
            self._turn = asyncio.create_task(self._follow())
            try:
                await asyncio.wait([self._turn])
            finally:
                self._turn.cancel()
            error = _failure(self._turn)
            self._set_following(False)
            if error is not None:
                await self._clock.sleep(self._retries.failed(error))

    def interrupt(self) -> None:
        """The connection may be dead without any sign of it: open another one."""
        if self._turn is not None:
            self._turn.cancel()

    async def _follow(self) -> None:
        if not self._since:
            self._since = await self._list()
        seconds = WATCH_SECONDS * random.uniform(0.8, 1.0)
        try:
            async for event in self._api.watch(self._path, self._query, self._since, seconds):
                if not event:
                    self._set_following(True)
                    continue
                self._hear(event)
                self._retries.succeeded()
        except Compacted:
            log.info("a watch of the cluster has to list again", path=self._path)
            self._since = ""
            raise
        self._retries.succeeded()

    async def _list(self) -> str:
        objects: dict[str, Json] = {}
        since = ""
        async for page in self._api.pages(self._path, self._query):
            objects.update((_key(item), item) for item in page.get("items") or ())
            since = page["metadata"]["resourceVersion"]
        self._listener.listed(objects)
        return since

    def _hear(self, event: Json) -> None:
        thing = event["object"]
        if event["type"] == "DELETED":
            self._listener.gone(_key(thing), thing)
        elif event["type"] != "BOOKMARK":
            self._listener.put(_key(thing), thing)
        self._since = thing["metadata"]["resourceVersion"]

    def _set_following(self, following: bool) -> None:
        if following != self.following:
            self.following = following
            self._changed()


def _failure(task: asyncio.Task[None]) -> ControlPlaneError | None:
    """Why a turn ended. An error that the API did not cause is a defect of the joblet, and raised."""
    if task.cancelled():
        return None
    error = task.exception()
    if isinstance(error, Compacted | Answered | Unavailable | OutcomeUnknown):
        forbidden = isinstance(error, Answered) and error.status in (401, 403)
        (log.warning if forbidden else log.info)("a watch of the cluster is tried again", error=str(error))
        return error
    if error is not None:
        raise error
    return None


def _key(thing: Json) -> str:
    metadata = thing["metadata"]
    return f"{metadata.get('namespace', '')}/{metadata['name']}"
