"""A standby's end of the pulse: follows one leader until it is judged gone.

It only connects, reads and counts; what follows from that is the table in `verdict`. Silence is counted in ticks of
this loop, so that a standby that was stopped or busy blames nobody else. Between the end of a connection and the
verdict that nobody is there lies no wait.
"""

from __future__ import annotations

import asyncio
import errno
import socket
from collections.abc import Coroutine
from typing import Any, TypeVar

from controlplane.election import message
from controlplane.election.race import cancel
from controlplane.election.settings import ElectionSettings
from controlplane.election.verdict import HOW, Event, State, following
from controlplane.election.view import CandidateEntry
from controlplane.model.leadership import TermEnd

T = TypeVar("T")

# A connection to a process that is just ending may be taken and reset; that is worth a second look at once.
_TRIES_AT_ONCE = 2
_UNREACHABLE = frozenset({errno.EHOSTUNREACH, errno.ENETUNREACH, errno.EHOSTDOWN, errno.ENETDOWN, errno.ETIMEDOUT})


class Listener:
    """Follows one leader in one epoch, once."""

    def __init__(self, settings: ElectionSettings, incarnation: str, leader: CandidateEntry) -> None:
        self._settings = settings
        self._hello = message.write(message.Hello(hello=incarnation))
        self._leader = leader
        self._quiet_ticks = 0
        self.state = State.UNREACHED

    async def follow(self) -> TermEnd:
        """Returns when the leader is judged gone, which may be never. Cancelling it closes its connection."""
        tries = 0
        while self.state not in HOW:
            tries = 0 if await self._connect_and_listen() else tries + 1
            if self.state not in HOW and tries >= _TRIES_AT_ONCE:
                await self._pause()
        entry = self._leader
        return TermEnd(epoch=entry.create_revision, how=HOW[self.state], incarnation=entry.candidate.incarnation)

    async def _connect_and_listen(self) -> bool:
        """One connection, from its start to its end; whether it was up at all."""
        try:
            connection = socket.socket(self._family(), socket.SOCK_STREAM)
        except OSError:
            self._take(Event.UNABLE)
            return False
        with connection:
            connection.setblocking(False)
            buffer = bytearray()
            self._take(await self._call(connection, buffer))
            was_up = self.state is State.UP
            while self.state is State.UP:
                self._take(await self._listen(connection, buffer))
        return was_up

    def _take(self, event: Event) -> None:
        self.state = following(self.state, event)

    def _family(self) -> socket.AddressFamily:
        return socket.AF_INET6 if self._leader.candidate.pulse.count(":") > 1 else socket.AF_INET

    async def _call(self, connection: socket.socket, buffer: bytearray) -> Event:
        """A fresh connection: says hello and waits for the answer."""
        ticks = self._settings.ticks(self._settings.pulse_answer_seconds)
        try:
            return await self._within(self._greet(connection, buffer), ticks) or Event.NO_ANSWER
        except ConnectionRefusedError:
            return Event.REFUSED
        except (ConnectionError, TimeoutError):
            return Event.NO_ANSWER
        except OSError as error:
            unreachable = error.errno in _UNREACHABLE
            return Event.NO_ANSWER if unreachable else Event.UNABLE
        except (ValueError, OverflowError):
            return Event.UNABLE

    async def _greet(self, connection: socket.socket, buffer: bytearray) -> Event:
        host, _, port = self._leader.candidate.pulse.rpartition(":")
        loop = asyncio.get_running_loop()
        await loop.sock_connect(connection, (host.strip("[]"), int(port)))
        await loop.sock_sendall(connection, self._hello)
        event = await self._hear(connection, buffer)
        return Event.NO_ANSWER if event is Event.CLOSED else event

    async def _listen(self, connection: socket.socket, buffer: bytearray) -> Event:
        ticks = self._settings.ticks(self._settings.pulse_silence_seconds)
        try:
            return await self._within(self._hear(connection, buffer), ticks) or Event.SILENCE
        except OSError:
            return Event.CLOSED

    async def _hear(self, connection: socket.socket, buffer: bytearray) -> Event:
        """What the next line says; junk counts as the end of the connection."""
        loop = asyncio.get_running_loop()
        while b"\n" not in buffer:
            data = await loop.sock_recv(connection, message.LONGEST)
            if not data or len(buffer) > message.LONGEST:
                return Event.CLOSED
            buffer += data
        line, _, rest = bytes(buffer).partition(b"\n")
        buffer[:] = rest
        pulse = message.read_pulse(line)
        if pulse is None:
            return Event.CLOSED
        if pulse.incarnation != self._leader.candidate.incarnation:
            return Event.IMPOSTOR
        self._quiet_ticks = 0
        return Event.BYE if pulse.ended >= self._leader.create_revision else Event.ALIVE

    async def _pause(self) -> None:
        """One tick between fruitless tries, which counts as silence."""
        await asyncio.sleep(self._settings.tick_seconds)
        self._quiet_ticks += 1
        if self._quiet_ticks >= self._settings.ticks(self._settings.pulse_silence_seconds):
            self._take(Event.SILENCE)

    async def _within(self, work: Coroutine[Any, Any, T], ticks: int) -> T | None:
        """The result, or None when it took more ticks of this loop than that."""
        task = asyncio.ensure_future(work)
        try:
            # One tick more: after a stop of the whole process the first tick ends before its data is read.
            for _ in range(ticks + 1):
                done, _ = await asyncio.wait({task}, timeout=self._settings.tick_seconds)
                if done:
                    return task.result()
                self._quiet_ticks += 1
            return None
        finally:
            # It must be off the socket before the socket is closed.
            await cancel(task)
