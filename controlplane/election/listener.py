"""The listener: a standby's end of the pulse, which follows a leader until the leader is judged gone.

The listener only connects, reads and counts; the table in `verdict` draws the conclusions. Silence is counted in ticks
of the own event loop, so that a standby that was stopped or busy does not blame the leader. When a connection ends and
the address of the leader refuses a fresh connection, the verdict follows without any wait.

With the cluster key, an answer without a valid proof counts as no answer if the candidate says that it proves itself.
A stranger may bind the port of a dead leader, and then answer, stall, hang up, or repeat a recorded answer:

- The stranger never passes as the leader: no such answer brings the standby up or interrupts the counted silence.
- The stranger never ends the term at once, either: only a replica with the cluster key is believed to be another
  incarnation at the address. While the leader lives, its port is taken, and the stranger cannot answer there at all.
- The stranger can delay the verdict, because fresh connections are not refused: the leader is then judged silent, after
  pulse_silence_seconds and a last connection without a proof within pulse_answer_seconds. A leader that hangs is
  replaced after the same time, and no stranger makes the lease live longer than its TTL.

A server sends its proof with its first answer, so a proof costs no round trip. The verdict on a killed leader needs no
proof and is as fast as without a key: the connection closes, and a fresh connection is refused.
"""

from __future__ import annotations

import asyncio
import errno
import socket
from collections.abc import Coroutine
from contextlib import suppress
from typing import Any, TypeVar

import structlog

from controlplane.election import message
from controlplane.election.election_settings import ElectionSettings
from controlplane.election.follower_handshake import FollowerHandshake
from controlplane.election.message import Pulse
from controlplane.election.pulse_proof import PulseProver
from controlplane.election.race import cancel
from controlplane.election.verdict import HOW, PulseEvent, PulseState, following
from controlplane.election.view import CandidateEntry
from controlplane.model import address
from controlplane.model.errors import Invalid
from controlplane.model.leadership import TermEnd

log = structlog.get_logger(__name__)

T = TypeVar("T")

# A process that is just ending may accept a connection and reset it, so a second try follows at once.
_TRIES_AT_ONCE = 2
_UNREACHABLE = frozenset({errno.EHOSTUNREACH, errno.ENETUNREACH, errno.EHOSTDOWN, errno.ENETDOWN, errno.ETIMEDOUT})


class Listener:
    """Follows a leader in a single epoch, once."""

    def __init__(
        self,
        settings: ElectionSettings,
        incarnation: str,
        leader: CandidateEntry,
        *,
        prover: PulseProver | None = None,
    ) -> None:
        self._settings = settings
        self._incarnation = incarnation
        self._leader = leader
        self._prover = prover
        self._quiet_ticks = 0
        self._warned = False
        self.state = PulseState.UNREACHED

    async def follow(self) -> TermEnd:
        """Returns when the leader is judged gone, which may be never. A cancellation closes the connection."""
        tries = 0
        while self.state not in HOW:
            tries = 0 if await self._connect_and_listen() else tries + 1
            if self.state not in HOW and tries >= _TRIES_AT_ONCE:
                await self._pause()
        entry = self._leader
        return TermEnd(epoch=entry.create_revision, how=HOW[self.state], incarnation=entry.candidate.incarnation)

    async def _connect_and_listen(self) -> bool:
        """Runs a connection from its start to its end; returns whether the connection was ever up."""
        try:
            connection = socket.socket(self._family(), socket.SOCK_STREAM)
        except OSError:
            self._take(PulseEvent.UNABLE)
            return False
        with connection:
            connection.setblocking(False)
            buffer = bytearray()
            self._take(await self._call(connection, buffer))
            was_up = self.state is PulseState.UP
            while self.state is PulseState.UP:
                self._take(await self._listen(connection, buffer))
        return was_up

    def _take(self, event: PulseEvent) -> None:
        self.state = following(self.state, event)

    def _family(self) -> socket.AddressFamily:
        return socket.AF_INET6 if self._leader.candidate.pulse.count(":") > 1 else socket.AF_INET

    async def _call(self, connection: socket.socket, buffer: bytearray) -> PulseEvent:
        """Opens a fresh connection: sends the hello and waits for the answer."""
        ticks = self._settings.ticks(self._settings.pulse_answer_seconds)
        try:
            return await self._within(self._greet(connection, buffer), ticks) or PulseEvent.NO_ANSWER
        except ConnectionRefusedError:
            return PulseEvent.REFUSED
        except (ConnectionError, TimeoutError):
            return PulseEvent.NO_ANSWER
        except OSError as error:
            unreachable = error.errno in _UNREACHABLE
            return PulseEvent.NO_ANSWER if unreachable else PulseEvent.UNABLE
        except (Invalid, ValueError, OverflowError):
            return PulseEvent.UNABLE

    async def _greet(self, connection: socket.socket, buffer: bytearray) -> PulseEvent:
        loop = asyncio.get_running_loop()
        await loop.sock_connect(connection, address.parse(self._leader.candidate.pulse, "pulse"))
        handshake = FollowerHandshake(self._incarnation, self._leader.candidate, self._prover)
        await loop.sock_sendall(connection, handshake.hello())
        answer = await _next_pulse(connection, buffer)
        if answer is None:
            return PulseEvent.NO_ANSWER
        if not handshake.is_believed(answer):
            self._warn()
            return PulseEvent.NO_ANSWER
        event = self._judge(answer)
        if event is PulseEvent.ALIVE:
            # A leader that is gone by now was reached all the same; the next read shows that the connection closed.
            with suppress(ConnectionError):
                await loop.sock_sendall(connection, handshake.proof(answer))
        return event

    async def _listen(self, connection: socket.socket, buffer: bytearray) -> PulseEvent:
        ticks = self._settings.ticks(self._settings.pulse_silence_seconds)
        try:
            return await self._within(self._hear(connection, buffer), ticks) or PulseEvent.SILENCE
        except OSError:
            return PulseEvent.CLOSED

    async def _hear(self, connection: socket.socket, buffer: bytearray) -> PulseEvent:
        """The event that the next line of the leader means; junk counts as the end of the connection."""
        pulse = await _next_pulse(connection, buffer)
        return PulseEvent.CLOSED if pulse is None else self._judge(pulse)

    def _judge(self, pulse: Pulse) -> PulseEvent:
        if pulse.incarnation != self._leader.candidate.incarnation:
            return PulseEvent.IMPOSTOR
        self._quiet_ticks = 0
        return PulseEvent.BYE if pulse.ended >= self._leader.create_revision else PulseEvent.ALIVE

    def _warn(self) -> None:
        if not self._warned:
            self._warned = True
            candidate = self._leader.candidate
            log.warning("a pulse does not prove itself", replica=candidate.id, pulse=candidate.pulse)

    async def _pause(self) -> None:
        """Waits a tick between fruitless tries; the tick counts as silence."""
        await asyncio.sleep(self._settings.tick_seconds)
        self._quiet_ticks += 1
        if self._quiet_ticks >= self._settings.ticks(self._settings.pulse_silence_seconds):
            self._take(PulseEvent.SILENCE)

    async def _within(self, work: Coroutine[Any, Any, T], ticks: int) -> T | None:
        """The result of the work, or None when the work took more than `ticks` ticks of the event loop."""
        task = asyncio.ensure_future(work)
        try:
            # One tick more: after a stop of the whole process the first tick ends before the waiting data is read.
            for _ in range(ticks + 1):
                done, _ = await asyncio.wait({task}, timeout=self._settings.tick_seconds)
                if done:
                    return task.result()
                self._quiet_ticks += 1
            return None
        finally:
            # The task must have left the socket before the socket is closed.
            await cancel(task)


async def _next_pulse(connection: socket.socket, buffer: bytearray) -> Pulse | None:
    """The next line of the leader; None for junk and at the end of the connection."""
    loop = asyncio.get_running_loop()
    while b"\n" not in buffer:
        data = await loop.sock_recv(connection, message.LONGEST)
        if not data or len(buffer) > message.LONGEST:
            return None
        buffer += data
    line, _, rest = bytes(buffer).partition(b"\n")
    buffer[:] = rest
    return message.read_pulse(line)
