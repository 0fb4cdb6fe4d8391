"""One joblet's stream on this replica: reads what the joblet sends, writes what waits for it, ends for a reason.

Reports are taken many at a time and heartbeats past them. A heartbeat is acknowledged only after a renewal of the
lease that began after it arrived: a holder of a unique resource counts on that.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Sequence
from typing import Any

import structlog

from controlplane.apiserver.dependencies import ApiDependencies
from controlplane.apiserver.joblets import report as rules
from controlplane.apiserver.joblets.intake import Intake, Prepared, Told
from controlplane.apiserver.joblets.leftovers import Leftovers
from controlplane.apiserver.joblets.messages import Answer, Confirmed
from controlplane.apiserver.joblets.outbox import Outbox
from controlplane.apiserver.joblets.room import Room
from controlplane.apiserver.joblets.session import Session
from controlplane.apiserver.joblets.telemetry import Moves, Telemetry
from controlplane.apiserver.logs.desk import Taps
from controlplane.cache.restoring import is_restored
from controlplane.model.errors import Broken, ControlPlaneError, Invalid, StaleAttempt, Unavailable
from controlplane.wire.v1 import joblets_pb2

log = structlog.get_logger(__name__)

Send = Callable[[joblets_pb2.ReplicaBatch], Awaitable[None]]

# Beyond this the stream is not read until answers came, which gRPC's flow control tells the joblet.
_MAX_REPORTS = 2048
# After so many messages others have their turn.
_TURN = 100


class Stream:
    def __init__(self, deps: ApiDependencies, session: Session, moves: Moves, *, logs: bool) -> None:
        """`logs`: the joblet understands when it is asked for some."""
        self._deps = deps
        self.session = session
        self._moves = moves
        self._telemetry = Telemetry(deps, session)
        self._outbox = Outbox(session.target, deps.cache)
        self.taps = Taps(session.target, logs, self._outbox.answer)
        self._intake = Intake(deps, session)
        self._leftovers = Leftovers(deps, session)
        self._room = Room(deps, session)
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
        """Returns when the joblet has nothing more to say; raises why the replica ended it."""
        reading = self._spawn(self._read(first, rest))
        self._spawn(self._write(send))
        try:
            either: set[asyncio.Future[Any]] = {reading, self._ending}
            await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
            if self._ending.done():
                raise self._ending.result()
        finally:
            self.taps.end()
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
            revision=self._deps.cache.revision,
            replica=self._deps.replica_id,
            cluster=live.cluster,
            restored=is_restored(self._deps.cache.snapshot),
            stats_seconds=self._telemetry.intervals()[1],
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
        """Reports of one batch are stored together; those that have to wait for something do so on their own.

        The last heartbeat of a batch stands for all of them."""
        ready: list[Prepared] = []
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
                    self.taps.hear(message.log_chunk)
                case "hello":
                    raise Invalid("hello", "must be the first message only")
                case _:
                    log.debug("a message that this version does not know is stepped over", target=self.session.target)
        if ready:
            self._spawn(self._store(ready))
        while self._unanswered > _MAX_REPORTS or self._outbox.answers > _MAX_REPORTS:
            self._relief.clear()
            await self._relief.wait()

    def _take(self, told: Told, ready: list[Prepared]) -> None:
        self._unanswered += 1
        try:
            prepared = self._intake.prepare(told)
        except ControlPlaneError as error:
            self._refuse(told, error)
            return
        if prepared is not None:
            ready.append(prepared)
        else:
            self._spawn(self._take_late(told))

    async def _take_late(self, told: Told) -> None:
        try:
            prepared = await self._intake.prepare_late(told)
        except ControlPlaneError as error:
            self._refuse(told, error)
            return
        await self._store([prepared])

    async def _store(self, prepared: list[Prepared]) -> None:
        for answer in await self._intake.store(prepared):
            self._answer(answer)

    def _refuse(self, told: Told, error: ControlPlaneError) -> None:
        rules.refuse(told.answer, error)
        self._answer(told.answer)

    def _answer(self, answer: Answer) -> None:
        self._unanswered -= 1
        self._relief.set()
        self._outbox.answer(answer)

    def _hear_beat(self, heartbeat: joblets_pb2.Heartbeat) -> None:
        self._beat = heartbeat.number
        stats = self._telemetry.hear(heartbeat.stats)
        if stats is not None:
            self._spawn(self._telemetry.store(stats))
        if heartbeat.HasField("leftovers") and self._leftovers.hear(heartbeat.leftovers):
            self._spawn(self._leftovers.store())
        if heartbeat.capacity and self._room.hear(heartbeat.capacity):
            self._spawn(self._room.store())
        if not self._renewing:
            self._renewing = True
            self._spawn(self._renew())

    async def _renew(self) -> None:
        """One renewal at a time; heartbeats that come meanwhile are answered by the next one."""
        try:
            while self._renewed != self._beat:
                self._renewed = number = self._beat
                await self._confirm(number)
        finally:
            self._renewing = False

    async def _confirm(self, number: int) -> None:
        try:
            alive = await self._deps.renewals.renew(self.session.lease, float(self.session.live.lease_seconds) / 3)
        except Unavailable as error:
            log.debug("a session could not be renewed", target=self.session.target, error=str(error))
            return
        if not alive:
            raise StaleAttempt(f"session {self.session.name} of target {self.session.target} is over", field="session")
        self._outbox.answer(Confirmed(number, *self._telemetry.intervals()))
        if self._telemetry.outgrown() and self._moves.take():
            self.end(Unavailable("the session is to have another lease: come again"))

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
