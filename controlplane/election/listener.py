"""The listener: a standby's end of the pulse, which follows a leader until the leader is judged gone.

The listener only connects, reads and counts; the table in `verdict` draws the conclusions. Silence is counted in ticks
of the own event loop, so that a standby that was stopped or busy does not blame the leader. When a connection ends and
the address of the leader refuses a fresh connection, the verdict follows without any wait.
"""

from __future__ import annotations

import asyncio
import errno
import socket
from collections.abc import Coroutine
from typing import Any, TypeVar

from controlplane.election import message
from controlplane.election.election_settings import ElectionSettings
from controlplane.election.race import cancel
from controlplane.election.verdict import HOW, PulseEvent, PulseState, following
from controlplane.election.view import CandidateEntry
from controlplane.model import address
from controlplane.model.errors import Invalid
from controlplane.model.leadership import TermEnd

T = TypeVar("T")

# A process that is just ending may accept a connection and reset it, so a second try follows at once.
_TRIES_AT_ONCE = 2
_UNREACHABLE = frozenset({errno.EHOSTUNREACH, errno.ENETUNREACH, errno.EHOSTDOWN, errno.ENETDOWN, errno.ETIMEDOUT})


class Listener:
    """Follows a leader in a single epoch, once."""

    def __init__(self, settings: ElectionSettings, incarnation: str, leader: CandidateEntry) -> None:
        self._settings = settings
        self._hello = message.write(message.Hello(hello=incarnation))
        self._leader = leader
        self._quiet_ticks = 0
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
        await loop.sock_sendall(connection, self._hello)
        event = await self._hear(connection, buffer)
        return PulseEvent.NO_ANSWER if event is PulseEvent.CLOSED else event

    async def _listen(self, connection: socket.socket, buffer: bytearray) -> PulseEvent:
        ticks = self._settings.ticks(self._settings.pulse_silence_seconds)
        try:
            return await self._within(self._hear(connection, buffer), ticks) or PulseEvent.SILENCE
        except OSError:
            return PulseEvent.CLOSED

    async def _hear(self, connection: socket.socket, buffer: bytearray) -> PulseEvent:
        """The event that the next line of the leader means; junk counts as the end of the connection."""
        loop = asyncio.get_running_loop()
        while b"\n" not in buffer:
            data = await loop.sock_recv(connection, message.LONGEST)
            if not data or len(buffer) > message.LONGEST:
                return PulseEvent.CLOSED
            buffer += data
        line, _, rest = bytes(buffer).partition(b"\n")
        buffer[:] = rest
        pulse = message.read_pulse(line)
        if pulse is None:
            return PulseEvent.CLOSED
        if pulse.incarnation != self._leader.candidate.incarnation:
            return PulseEvent.IMPOSTOR
        self._quiet_ticks = 0
        return PulseEvent.BYE if pulse.ended >= self._leader.create_revision else PulseEvent.ALIVE

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
