"""One joblet's stream on this replica: reads the joblet's messages, writes the outbox, ends for a reason.

Reports are taken many at a time, and heartbeats overtake them. A heartbeat is acknowledged only by a renewal of the
lease begun after the heartbeat arrived: a holder of a unique resource relies on this order.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Sequence
from typing import Any

import structlog

from controlplane.apiserver.api_ports import Reads, Writes
from controlplane.apiserver.joblets import report_rules as rules
from controlplane.apiserver.joblets import session_pace
from controlplane.apiserver.joblets.live_record import (
    LiveChange,
    LiveRecord,
    capacity_change,
    leftovers_change,
    stats_change,
)
from controlplane.apiserver.joblets.replica_messages import Answer, Confirmed
from controlplane.apiserver.joblets.report_intake import PreparedReport, ReceivedReport, ReportIntake
from controlplane.apiserver.joblets.session import Session
from controlplane.apiserver.joblets.session_outbox import SessionOutbox
from controlplane.apiserver.joblets.session_pace import LeaseMoves
from controlplane.apiserver.logs.log_broker import StreamLogs
from controlplane.cache.restore_state import is_restored
from controlplane.model import times
from controlplane.model.errors import Broken, ControlPlaneError, Invalid, StaleAttempt, Unavailable
from controlplane.store.lease import Renewals
from controlplane.wire.v1 import joblets_pb2

log = structlog.get_logger(__name__)

Send = Callable[[joblets_pb2.ReplicaBatch], Awaitable[None]]

# Beyond this number the stream is not read until answers were sent: gRPC's flow control then stops the joblet.
_MAX_REPORTS = 2048
# After so many messages other work of the loop has its turn.
_TURN = 100


class SessionStream:
    def __init__(
        self,
        reads: Reads,
        writes: Writes,
        session: Session,
        *,
        replica_id: str,
        renewals: Renewals,
        moves: LeaseMoves,
        understands_logs: bool,
    ) -> None:
        self._reads = reads
        self._writes = writes
        self._replica_id = replica_id
        self._renewals = renewals
        self.session = session
        self._moves = moves
        self._outbox = SessionOutbox(session.target, reads.cache)
        self.logs = StreamLogs(session.target, understands_logs, self._outbox.answer)
        self._intake = ReportIntake(reads, writes, session)
        self._live = LiveRecord(reads, writes, session)
        self._ending: asyncio.Future[ControlPlaneError] = asyncio.get_running_loop().create_future()
        self._tasks: set[asyncio.Task[None]] = set()
        self._unanswered = 0
        self._relief = asyncio.Event()
        self._outbox.taken = self._relief.set
        self._beat = self._renewed = 0
        self._renewing = False

    def touch(self, fulfilment: str, *, gone: bool) -> None:
        """The fulfilment is desired, changed, or no longer desired."""
        if gone:
            self._intake.forget(fulfilment)
        self._outbox.touch(fulfilment)

    def end(self, why: ControlPlaneError) -> None:
        if not self._ending.done():
            self._ending.set_result(why)

    async def run(
        self, first: joblets_pb2.JobletBatch, rest: AsyncIterator[joblets_pb2.JobletBatch], send: Send
    ) -> None:
        """Returns when the joblet ends the stream; raises the reason for which the replica ends it."""
        reading = self._spawn(self._read(first, rest))
        self._spawn(self._write(send))
        try:
            either: set[asyncio.Future[Any]] = {reading, self._ending}
            await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
            if self._ending.done():
                raise self._ending.result()
        finally:
            self.logs.end()
            left = [task for task in self._tasks if not task.done()]
            for task in left:
                task.cancel()
            await asyncio.gather(*left, return_exceptions=True)

    async def _write(self, send: Send) -> None:
        live = self.session.live
        welcome = joblets_pb2.Welcome(
            session=self.session.name,
            lease_seconds=live.lease_seconds,
            heartbeat_seconds=self.session.heartbeat_seconds,
            kill_grace_seconds=live.stop_within,
            revision=self._reads.cache.revision,
            replica=self._replica_id,
            cluster=live.cluster,
            restored=is_restored(self._reads.cache.snapshot),
            stats_seconds=self._intervals()[1],
        )
        async for batch in self._outbox.batches(welcome, self.session.revision):
            await send(batch)

    async def _read(self, first: joblets_pb2.JobletBatch, rest: AsyncIterator[joblets_pb2.JobletBatch]) -> None:
        loop = asyncio.get_running_loop()
        patience = float(self.session.live.lease_seconds)
        await self._hear(first.messages[1:])
        try:
            async with asyncio.timeout(patience) as silence:
                async for batch in rest:
                    silence.reschedule(loop.time() + patience)
                    await self._hear(batch.messages)
        except TimeoutError:
            raise Unavailable(f"nothing came from the joblet for {patience:g} s") from None

    async def _hear(self, messages: Sequence[joblets_pb2.JobletMessage]) -> None:
        """Reports of one batch are stored together; a report with something to wait for is stored on its own.

        The last heartbeat of a batch stands for all of them.
        """
        ready: list[PreparedReport] = []
        for message in reversed(messages):
            if message.HasField("heartbeat"):
                self._hear_beat(message.heartbeat)
                break
        for position, message in enumerate(messages, 1):
            if position % _TURN == 0:
                await asyncio.sleep(0)
            match message.WhichOneof("message"):
                case "report":
                    self._take(self._intake.read(message.report), ready)
                case "heartbeat":
                    pass
                case "log_chunk":
                    self.logs.hear(message.log_chunk)
                case "hello":
                    raise Invalid("hello", "must be the first message only")
                case _:
                    log.debug("a message that this version does not know is stepped over", target=self.session.target)
        if ready:
            self._spawn(self._store(ready))
        while self._unanswered > _MAX_REPORTS or self._outbox.answers > _MAX_REPORTS:
            self._relief.clear()
            await self._relief.wait()

    def _take(self, received: ReceivedReport, ready: list[PreparedReport]) -> None:
        self._unanswered += 1
        try:
            prepared = self._intake.prepare(received)
        except ControlPlaneError as error:
            self._refuse(received, error)
            return
        if prepared is not None:
            ready.append(prepared)
        else:
            self._spawn(self._take_late(received))

    async def _take_late(self, received: ReceivedReport) -> None:
        try:
            prepared = await self._intake.prepare_late(received)
        except ControlPlaneError as error:
            self._refuse(received, error)
            return
        await self._store([prepared])

    async def _store(self, prepared: list[PreparedReport]) -> None:
        for answer in await self._intake.store(prepared):
            self._answer(answer)

    def _refuse(self, received: ReceivedReport, error: ControlPlaneError) -> None:
        rules.refuse(received.answer, error)
        self._answer(received.answer)

    def _answer(self, answer: Answer) -> None:
        self._unanswered -= 1
        self._relief.set()
        self._outbox.answer(answer)

    def _hear_beat(self, heartbeat: joblets_pb2.Heartbeat) -> None:
        self._beat = heartbeat.number
        if heartbeat.stats:
            self._update("stats", stats_change(heartbeat.stats, times.show(self._writes.clock.wall())))
        if heartbeat.HasField("leftovers"):
            self._update("leftovers", leftovers_change(heartbeat.leftovers))
        if heartbeat.capacity:
            self._update("capacity", capacity_change(heartbeat.capacity, self.session.target))
        if not self._renewing:
            self._renewing = True
            self._spawn(self._renew())

    async def _renew(self) -> None:
        """One renewal at a time; heartbeats during a renewal are answered by the next renewal."""
        try:
            while self._renewed != self._beat:
                self._renewed = number = self._beat
                await self._confirm(number)
        finally:
            self._renewing = False

    async def _confirm(self, number: int) -> None:
        try:
            alive = await self._renewals.renew(self.session.lease, float(self.session.live.lease_seconds) / 3)
        except Unavailable as error:
            log.debug("a session could not be renewed", target=self.session.target, error=str(error))
            return
        if not alive:
            raise StaleAttempt(f"session {self.session.name} of target {self.session.target} is over", field="session")
        self._outbox.answer(Confirmed(number, *self._intervals()))
        if session_pace.has_outgrown_lease(self.session, self._reads.cache.snapshot) and self._moves.take():
            self.end(Unavailable("the session is to have another lease: come again"))

    def _update(self, kind: str, change: LiveChange | None) -> None:
        if change is not None and self._live.update(kind, change):
            self._spawn(self._live.store())

    def _intervals(self) -> tuple[float, float]:
        return session_pace.intervals(self.session, self._reads.cache.snapshot)

    def _spawn(self, work: Coroutine[None, None, None]) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._landed)
        return task

    def _landed(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if task.cancelled():
            return
        error = task.exception()
        if isinstance(error, ControlPlaneError):
            self.end(error)
        elif error is not None:
            log.error("a joblet's stream broke", target=self.session.target, exc_info=error)
            self.end(Broken(f"{type(error).__name__} while serving the stream"))
