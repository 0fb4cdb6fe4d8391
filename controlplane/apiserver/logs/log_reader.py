"""LogReader: one reader's log of one task, from the request to the end, attempt after attempt.

Reading goes on at the next byte when the joblet changes replicas or a replica breaks. A follower waits: for the start,
for the next attempt, for a target which is away. Without following, every obstacle is an error.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing, suppress
from typing import Any, NamedTuple

from controlplane.aio.clock import Clock
from controlplane.apiserver import authorisation
from controlplane.apiserver.api_ports import Reads
from controlplane.apiserver.call import Call
from controlplane.apiserver.fresh_reads import PATIENCE_SECONDS, fresh
from controlplane.apiserver.logs import task_attempts
from controlplane.apiserver.logs.log_broker import LogBroker, LogSubscription
from controlplane.apiserver.logs.peer_logs import PeerLog
from controlplane.apiserver.logs.task_attempts import TaskAttempt, TaskPlace
from controlplane.apiserver.logs.task_notifier import TaskNotifier
from controlplane.apiserver.queries.views import task_view
from controlplane.apiserver.queries.views.order_view import OrderView
from controlplane.model.errors import NotFound, Unavailable
from controlplane.model.task import FINAL_TASK, NOT_STARTED, TaskPhase
from controlplane.store import keys
from controlplane.wire.v1 import logs_pb2

_PAUSE_SECONDS, _MOST_PAUSE_SECONDS = 0.05, 0.5
# How much longer than its lease a joblet may take from one replica to the next.
_GRACE_SECONDS = 2.0


class Look(NamedTuple):
    """The task as etcd shows it now."""

    attempts: list[TaskAttempt]
    phase: str
    reason: str
    message: str

    @property
    def final(self) -> bool:
        return self.phase in FINAL_TASK

    def words(self) -> str:
        front = f"{self.phase} ({self.reason})" if self.reason else self.phase
        return f"{front}: {self.message}" if self.message else front


class LogReaders:
    """The parts shared by the readers of a replica. `incarnation` is the replica's own."""

    def __init__(self, reads: Reads, clock: Clock, broker: LogBroker, view: OrderView, incarnation: str) -> None:
        self.reads = reads
        self.clock = clock
        self.broker = broker
        self.view = view
        self.incarnation = incarnation
        self.notifier = TaskNotifier(reads.cache)

    def read(self, call: Call, request: logs_pb2.LogsRequest) -> AsyncGenerator[logs_pb2.LogsChunk, None]:
        return LogReader(self, request).chunks(call)

    async def read_here(self, _call: Call, request: logs_pb2.ReadLogRequest) -> AsyncGenerator[logs_pb2.LogPiece, None]:
        """For another replica: a log of a joblet connected here. Never asks a third replica."""
        log = self.broker.open_here(request.target, request.query)
        try:
            yield logs_pb2.LogPiece()
            while (piece := await log.read()) is not None:
                yield piece
        finally:
            log.close()


class LogReader:
    def __init__(self, shared: LogReaders, request: logs_pb2.LogsRequest) -> None:
        self._shared = shared
        self._reads = shared.reads
        self._view = shared.view
        self._request = request
        self._place = TaskPlace("", 0, 0)
        self._heard = asyncio.Event()
        self._attempt = 0
        self._offsets: dict[str, int] | None = None
        if request.resume.attempt:
            self._offsets = {"stdout": request.resume.start.stdout, "stderr": request.resume.start.stderr}

    async def chunks(self, call: Call) -> AsyncGenerator[logs_pb2.LogsChunk, None]:
        request = self._request
        task_attempts.check(request)
        snapshot = await fresh(self._reads.cache, call)
        entry = snapshot.get(keys.ORDERS, request.id)
        if entry is None:
            # The order may have been submitted through another replica a moment ago.
            await self._reads.cache.reached(await self._reads.store.revision(), PATIENCE_SECONDS)
            entry = self._reads.cache.snapshot.get(keys.ORDERS, request.id)
        if entry is None:
            raise NotFound(f"id: there is no order {request.id}", field="id")
        if not authorisation.sees(call.subject, "Order", self._view.owner(self._reads.cache.snapshot, request.id)):
            raise NotFound(f"id: there is no order {request.id}", field="id")
        order = self._view.order(entry)
        self._place = task_attempts.place_of(request, order, self._reads.ledgers.resolved(order))
        with self._shared.notifier.listening(request.id, self._place.task) as self._heard:
            async with aclosing(self._all()) as chunks:
                async for chunk in chunks:
                    yield chunk
        yield self._chunk(end=True)

    async def _all(self) -> AsyncGenerator[logs_pb2.LogsChunk, None]:
        """Ends after everything asked for was sent."""
        single = bool(self._request.attempt or self._request.previous) or not self._request.follow
        noted = ""
        while True:
            self._heard.clear()
            look = await self._look()
            attempt = task_attempts.choose(look.attempts, self._request, self._attempt)
            if attempt is None and self._attempt and look.final:
                return
            if attempt is not None and attempt.failed_to_start:
                why = f"attempt {attempt.number} of {self._place} could not be started on target {attempt.target}"
                if single or (look.final and attempt is look.attempts[-1]):
                    raise NotFound(f"{why}: {attempt.trouble}")
                yield self._chunk(note=f"{why}: {attempt.trouble}")
                self._attempt = attempt.number
                continue
            if attempt is None or not attempt.begun:
                why = self._why_nothing(look, attempt)
                if not self._request.follow or look.final:
                    raise NotFound(why)
                if why and why != noted:
                    yield self._chunk(note=why)
                noted = why
                await self._heard.wait()
                continue
            if self._attempt and attempt.number != self._attempt:
                yield self._chunk(note=f"attempt {attempt.number} of {self._place}, on target {attempt.target}")
            async with aclosing(self._one(attempt)) as chunks:
                async for chunk in chunks:
                    yield chunk
            if single:
                return

    async def _one(self, attempt: TaskAttempt) -> AsyncGenerator[logs_pb2.LogsChunk, None]:
        """All of one attempt. A gap in an attempt with a successor becomes a note, and is no error."""
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

    async def _pieces(self, attempt: TaskAttempt) -> AsyncGenerator[logs_pb2.LogsChunk, None]:
        """Unavailable when the attempt's target is away, or no replica has its joblet."""
        clock = self._shared.clock
        pause, noted = _PAUSE_SECONDS, ""
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
            if why and why != noted:
                yield self._chunk(note=why)
                noted = why
            with suppress(TimeoutError):
                async with asyncio.timeout(pause):
                    await self._heard.wait()
            self._heard.clear()
            pause = min(_MOST_PAUSE_SECONDS, pause * 2)

    async def _open(self, attempt: TaskAttempt) -> LogSubscription | PeerLog:
        """Opens the log here, or at the replica with the joblet."""
        query = self._query(attempt)
        if self._shared.broker.has(attempt.target):
            return self._shared.broker.open_here(attempt.target, query)
        return await self._shared.broker.peers.open(
            self._others(), logs_pb2.ReadLogRequest(target=attempt.target, query=query)
        )

    def _query(self, attempt: TaskAttempt) -> logs_pb2.LogQuery:
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
        """The addresses of the other replicas, by their candidacies."""
        candidates = self._reads.cache.snapshot.objects(keys.CANDIDATES)
        return [other.grpc for other in candidates if other.incarnation != self._shared.incarnation]

    def _desired(self, attempt: TaskAttempt) -> bool:
        return self._reads.cache.snapshot.has(keys.DESIRED, attempt.target, attempt.fulfilment)

    def _why_away(self, attempt: TaskAttempt, seconds: float, error: Unavailable) -> str:
        """Empty while the joblet may be on its way from one replica to another."""
        live = self._reads.cache.snapshot.live(attempt.target)
        if live is None:
            return f"target {attempt.target} keeps the logs of {self._place}, and its joblet is not there"
        if seconds < float(live.lease_seconds) + _GRACE_SECONDS:
            return ""
        return f"target {attempt.target} keeps the logs of {self._place}, and cannot be reached: {error}"

    def _why_nothing(self, look: Look, attempt: TaskAttempt | None) -> str:
        if attempt is not None:
            trouble = f": {attempt.trouble}" if attempt.trouble else ""
            return f"{self._place} has not started yet: it is placed on target {attempt.target}{trouble}"
        if look.final:
            return f"{self._place} never started: it is {look.words()}"
        if self._attempt and look.phase not in NOT_STARTED:
            return ""  # how the last one ended is not on record yet
        if self._attempt:
            return f"{self._place} waits for its next attempt: it is {look.words()}"
        return f"{self._place} has not started yet: it is {look.words()}"

    async def _look(self) -> Look:
        snapshot = self._reads.cache.snapshot
        entry = snapshot.get(keys.ORDERS, self._request.id)
        if entry is None:
            raise NotFound(f"id: order {self._request.id} was deleted", field="id")
        order, ledgers = self._view.order(entry), self._reads.ledgers
        position = self._place.position
        page = await task_view.page(ledgers, snapshot, order, start=position, limit=1, waits={})
        if page.tasks[0].phase == TaskPhase.PENDING:
            # The reasons of waiting take the engine, and are needed for a pending task only.
            waits = self._view.waits(order.id, 0)
            page = await task_view.page(ledgers, snapshot, order, start=position, limit=1, waits=waits)
        ended = snapshot.all(keys.ENDED, order.id)
        attempts = task_attempts.attempts_of(self._place, ledgers.orders.get(order.id), ended)
        task = page.tasks[0]
        return Look(attempts, task.phase, task.reason or "", task.message or "")

    def _chunk(self, **more: Any) -> logs_pb2.LogsChunk:
        return logs_pb2.LogsChunk(job=self._place.job, index=self._place.index, attempt=self._attempt, **more)
