"""One reader's log of one task, from the question to its end: attempt after attempt, through whichever replica.

It goes on at the next byte when the joblet changes replicas or a replica breaks. Followed, it waits for what comes: the
start, the next attempt, a target that is away. Not followed, whatever keeps it from reading is an error.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing, suppress
from typing import Any, NamedTuple

from controlplane.apiserver.dependencies import ApiDependencies
from controlplane.apiserver.guard import Context
from controlplane.apiserver.logs import finding
from controlplane.apiserver.logs.bell import Bell
from controlplane.apiserver.logs.desk import Tap
from controlplane.apiserver.logs.finding import Attempt, Place
from controlplane.apiserver.logs.peers import PeerLog
from controlplane.apiserver.reading import PATIENCE_SECONDS, fresh
from controlplane.apiserver.views import tasks
from controlplane.apiserver.views.orders import TREE, OrderView
from controlplane.model.errors import NotFound, Unavailable
from controlplane.model.leadership import Candidate
from controlplane.model.lifecycle import TaskPhase
from controlplane.model.target import Live
from controlplane.store.keys import LIVE
from controlplane.wire.v1 import logs_pb2

_FINAL = frozenset({TaskPhase.SUCCEEDED, TaskPhase.FAILED, TaskPhase.CANCELLED})
_WAITING = frozenset({TaskPhase.PENDING, TaskPhase.HELD})
_PAUSE_SECONDS, _MOST_PAUSE_SECONDS = 0.05, 0.5
# How much longer than its lease a joblet may take from one replica to the next.
_GRACE_SECONDS = 2.0


class Look(NamedTuple):
    """The task as etcd shows it now."""

    attempts: list[Attempt]
    phase: str
    reason: str
    message: str

    @property
    def final(self) -> bool:
        return self.phase in _FINAL

    def words(self) -> str:
        front = f"{self.phase} ({self.reason})" if self.reason else self.phase
        return f"{front}: {self.message}" if self.message else front


class Reading:
    def __init__(self, deps: ApiDependencies, view: OrderView, bell: Bell, request: logs_pb2.LogsRequest) -> None:
        self._deps = deps
        self._view = view
        self._bell = bell
        self._request = request
        self._place = Place("", 0, 0)
        self._heard = asyncio.Event()
        self._attempt = 0
        self._offsets: dict[str, int] | None = None
        if request.resume.attempt:
            self._offsets = {"stdout": request.resume.start.stdout, "stderr": request.resume.start.stderr}

    async def chunks(self, context: Context) -> AsyncGenerator[logs_pb2.LogsChunk, None]:
        request = self._request
        finding.check(request)
        snapshot = await fresh(self._deps.cache, request.min_revision, context)
        entry = snapshot.get(TREE, request.id)
        if entry is None:
            # It may have been submitted through another replica a moment ago.
            await self._deps.cache.reached(await self._deps.store.revision(), PATIENCE_SECONDS)
            entry = self._deps.cache.snapshot.get(TREE, request.id)
        if entry is None:
            raise NotFound(f"id: there is no order {request.id}", field="id")
        order = self._view.order(entry)
        self._place = finding.place_of(request, order, self._deps.ledgers.resolved(order))
        with self._bell.listening(request.id, self._place.task) as self._heard:
            async with aclosing(self._all()) as chunks:
                async for chunk in chunks:
                    yield chunk
        yield self._chunk(end=True)

    async def _all(self) -> AsyncGenerator[logs_pb2.LogsChunk, None]:
        """Ends when all was told that was asked for."""
        one = bool(self._request.attempt or self._request.previous) or not self._request.follow
        told = ""
        while True:
            self._heard.clear()
            look = await self._look()
            attempt = finding.choose(look.attempts, self._request, self._attempt)
            if attempt is None and self._attempt and look.final:
                return
            if attempt is not None and attempt.failed_to_start:
                why = f"attempt {attempt.number} of {self._place} could not be started on target {attempt.target}"
                if one or (look.final and attempt is look.attempts[-1]):
                    raise NotFound(f"{why}: {attempt.trouble}")
                yield self._chunk(note=f"{why}: {attempt.trouble}")
                self._attempt = attempt.number
                continue
            if attempt is None or not attempt.begun:
                why = self._why_nothing(look, attempt)
                if not self._request.follow or look.final:
                    raise NotFound(why)
                if why and why != told:
                    yield self._chunk(note=why)
                told = why
                await self._heard.wait()
                continue
            if self._attempt and attempt.number != self._attempt:
                yield self._chunk(note=f"attempt {attempt.number} of {self._place}, on target {attempt.target}")
            async with aclosing(self._one(attempt)) as chunks:
                async for chunk in chunks:
                    yield chunk
            if one:
                return

    async def _one(self, attempt: Attempt) -> AsyncGenerator[logs_pb2.LogsChunk, None]:
        """All of one attempt. What cannot be read of one that another follows is told, and is no error."""
        self._attempt = attempt.number
        try:
            async with aclosing(self._pieces(attempt)) as pieces:
                async for piece in pieces:
                    yield piece
        except (NotFound, Unavailable) as error:
            look = await self._look()
            last = not look.attempts or look.attempts[-1].number <= attempt.number
            if self._request.attempt or not self._request.follow or (last and look.final):
                raise
            yield self._chunk(note=f"attempt {attempt.number} of {self._place} cannot be read: {error}")
        self._offsets = None

    async def _pieces(self, attempt: Attempt) -> AsyncGenerator[logs_pb2.LogsChunk, None]:
        """Unavailable when its target is away, or no replica has its joblet."""
        clock = self._deps.clock
        pause, told = _PAUSE_SECONDS, ""
        broken_at: float | None = None
        while True:
            try:
                log = await self._open(attempt)
                try:
                    while (piece := await log.read()) is not None:
                        self._advance(piece)
                        yield self._chunk(piece=piece)
                        pause, broken_at = _PAUSE_SECONDS, None
                    return
                finally:
                    log.close()
            except Unavailable as error:
                now = clock.monotonic()
                broken_at = now if broken_at is None else broken_at
                why = self._why_away(attempt, now - broken_at, error)
            except NotFound as error:
                where = f"attempt {attempt.number} of {self._place} on target {attempt.target}"
                raise NotFound(f"{where}: {error}") from None
            if why and not (self._request.follow and self._desired(attempt)):
                raise Unavailable(why)
            if why and why != told:
                yield self._chunk(note=why)
                told = why
            with suppress(TimeoutError):
                async with asyncio.timeout(pause):
                    await self._heard.wait()
            self._heard.clear()
            pause = min(_MOST_PAUSE_SECONDS, pause * 2)

    async def _open(self, attempt: Attempt) -> Tap | PeerLog:
        """Here, or at the replica that has the joblet."""
        query = self._query(attempt)
        if self._deps.logs.has(attempt.target):
            return self._deps.logs.open_here(attempt.target, query)
        return await self._deps.logs.peers.open(
            self._others(), logs_pb2.ReadLogRequest(target=attempt.target, query=query)
        )

    def _query(self, attempt: Attempt) -> logs_pb2.LogQuery:
        request = self._request
        query = logs_pb2.LogQuery(
            order=request.id,
            fulfilment=attempt.fulfilment,
            job=self._place.job,
            index=self._place.index,
            attempt=attempt.number,
            stream=request.stream,
            follow=request.follow,
            tail_lines=request.tail_lines,
        )
        if self._offsets is not None:
            query.start.stdout, query.start.stderr = self._offsets["stdout"], self._offsets["stderr"]
        return query

    def _advance(self, piece: logs_pb2.LogPiece) -> None:
        if self._offsets is None:
            self._offsets = {"stdout": 0, "stderr": 0}
        self._offsets[piece.stream] = piece.offset + len(piece.data)

    def _others(self) -> list[str]:
        """Where the other replicas serve, as they said when they stood for election."""
        found = (entry.sound(Candidate) for entry in self._deps.cache.snapshot.all("election"))
        return [other.grpc for other in found if other is not None and other.incarnation != self._deps.incarnation]

    def _desired(self, attempt: Attempt) -> bool:
        return self._deps.cache.snapshot.get("desired", attempt.target, attempt.fulfilment) is not None

    def _why_away(self, attempt: Attempt, seconds: float, error: Unavailable) -> str:
        """Empty while its joblet may be on its way from one replica to another."""
        entry = self._deps.cache.snapshot.get("inventory", attempt.target, LIVE)
        live = entry.sound(Live) if entry is not None else None
        if live is None:
            return f"target {attempt.target} keeps the logs of {self._place}, and its joblet is not there"
        if seconds < float(live.lease_seconds) + _GRACE_SECONDS:
            return ""
        return f"target {attempt.target} keeps the logs of {self._place}, and cannot be reached: {error}"

    def _why_nothing(self, look: Look, attempt: Attempt | None) -> str:
        if attempt is not None:
            trouble = f": {attempt.trouble}" if attempt.trouble else ""
            return f"{self._place} has not started yet: it is placed on target {attempt.target}{trouble}"
        if look.final:
            return f"{self._place} never started: it is {look.words()}"
        if self._attempt and look.phase not in _WAITING:
            return ""  # how the last one ended is not on record yet
        if self._attempt:
            return f"{self._place} waits for its next attempt: it is {look.words()}"
        return f"{self._place} has not started yet: it is {look.words()}"

    async def _look(self) -> Look:
        snapshot = self._deps.cache.snapshot
        entry = snapshot.get(TREE, self._request.id)
        if entry is None:
            raise NotFound(f"id: order {self._request.id} was deleted", field="id")
        order, ledgers = self._view.order(entry), self._deps.ledgers
        position = self._place.position
        page = await tasks.page(ledgers, snapshot, order, start=position, limit=1, waits={})
        if page.tasks[0].phase == TaskPhase.PENDING:
            # Only then somebody asks for what it waits, which takes the engine.
            waits = self._view.waits(order.id, 0)
            page = await tasks.page(ledgers, snapshot, order, start=position, limit=1, waits=waits)
        ended = snapshot.all("status/ended", order.id)
        attempts = finding.attempts_of(self._place, ledgers.orders.get(order.id), ended)
        task = page.tasks[0]
        return Look(attempts, task.phase, task.reason, task.message)

    def _chunk(self, **more: Any) -> logs_pb2.LogsChunk:
        return logs_pb2.LogsChunk(job=self._place.job, index=self._place.index, attempt=self._attempt, **more)
