"""Follows one collection of the API: a list, then a watch from there on, for as long as it lives.

A watch that ends or breaks goes on behind the last event that was heard; only when the API has forgotten that is
there another list. Nothing is ever asked for again just to see whether it changed.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Mapping
from typing import Protocol

import structlog

from controlplane.aio.clock import Clock
from controlplane.joblet.drivers.kubernetes.api import Answered, Api, Json
from controlplane.joblet.drivers.kubernetes.patience import Patience
from controlplane.model.errors import Compacted, ControlPlaneError, OutcomeUnknown, Unavailable

WATCH_SECONDS = 240.0
log = structlog.get_logger()


class Follower(Protocol):
    def listed(self, found: Mapping[str, Json]) -> None:
        """All that is there, by namespace and name; what was there before and is not in it is gone."""

    def put(self, key: str, thing: Json) -> None: ...

    def gone(self, key: str, last: Json) -> None: ...


class Feed:
    """`following` says whether the API serves the watch right now."""

    def __init__(
        self,
        api: Api,
        path: str,
        query: Mapping[str, str],
        follower: Follower,
        *,
        clock: Clock,
        changed: Callable[[], None],
    ) -> None:
        self._api = api
        self._path = path
        self._query = dict(query)
        self._follower = follower
        self._clock = clock
        self._changed = changed
        self._since = ""
        self._patience = Patience()
        self._turn: asyncio.Task[None] | None = None
        self.following = False
        self.lists = 0

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
                await self._clock.sleep(self._patience.failure(error))

    def interrupt(self) -> None:
        """The connection may be dead without anybody having noticed: take another one."""
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
                self._patience.success()
        except Compacted:
            log.info("the cluster's API forgot where a watch was, listing anew", path=self._path)
            self._since = ""
            raise
        self._patience.success()

    async def _list(self) -> str:
        found: dict[str, Json] = {}
        since = ""
        async for page in self._api.pages(self._path, self._query):
            found.update((_key(item), item) for item in page.get("items") or ())
            since = page["metadata"]["resourceVersion"]
        self.lists += 1
        self._follower.listed(found)
        return since

    def _hear(self, event: Json) -> None:
        thing = event["object"]
        if event["type"] == "DELETED":
            self._follower.gone(_key(thing), thing)
        elif event["type"] != "BOOKMARK":
            self._follower.put(_key(thing), thing)
        self._since = thing["metadata"]["resourceVersion"]

    def _set_following(self, following: bool) -> None:
        if following != self.following:
            self.following = following
            self._changed()


def _failure(task: asyncio.Task[None]) -> ControlPlaneError | None:
    """Why a turn ended; what is no word of the API is a mistake of ours, and raised."""
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
