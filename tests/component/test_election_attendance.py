"""A leader knows at once that another process is gone, and again that it is there."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable

from controlplane.aio.clock import SystemClock
from controlplane.election.attendance import Attendance
from controlplane.election.pulse import PulseServer
from controlplane.election.settings import ElectionSettings
from controlplane.election.view import CandidateEntry
from controlplane.model.leadership import Candidate


def a_pulse(life: str, port: int = 0) -> PulseServer:
    server = PulseServer(ElectionSettings(pulse_port=port), life, SystemClock())
    server.start()
    return server


def an_entry(life: str, address: str) -> CandidateEntry:
    candidate = Candidate(id=life, incarnation=life, grpc="", http="", pulse=address, pid=1, version="1")
    return CandidateEntry(f"/controlplane/election/{life}", candidate, 7, 7, 1)


async def until(changed: asyncio.Event, holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(30):
        while not holds():
            await changed.wait()
            changed.clear()


async def test_who_is_gone_is_absent_until_it_answers_again() -> None:
    changed = asyncio.Event()
    attendance = Attendance(ElectionSettings(), "me")
    attendance.changed = changed.set
    other = a_pulse("other")
    port = int(other.address.rpartition(":")[2])
    attendance.follow([an_entry("me", "127.0.0.1:1"), an_entry("other", other.address)])
    async with asyncio.timeout(30):
        while not other.followers():
            await asyncio.sleep(0.02)
    assert not attendance.absent
    other.stop(5)
    await until(changed, lambda: attendance.absent == {"other"})
    # Somebody else at its address is not the one who left.
    impostor = a_pulse("impostor", port)
    async with asyncio.timeout(30):
        while not impostor.followers():
            await asyncio.sleep(0.02)
    assert attendance.absent == {"other"}
    impostor.stop(5)
    again = a_pulse("other", port)
    await until(changed, lambda: not attendance.absent)
    attendance.follow([])
    assert not attendance.absent
    await attendance.close()
    again.stop(5)


async def test_who_was_never_reached_is_not_called_absent() -> None:
    changed = asyncio.Event()
    attendance = Attendance(ElectionSettings(), "me")
    attendance.changed = changed.set
    with socket.create_server(("127.0.0.1", 0)) as closed:
        address = f"127.0.0.1:{closed.getsockname()[1]}"
    there = a_pulse("there")
    attendance.follow([an_entry("unreached", address), an_entry("there", there.address)])
    async with asyncio.timeout(30):
        while not there.followers():
            await asyncio.sleep(0.02)
    there.stop(5)
    await until(changed, lambda: "there" in attendance.absent)
    assert attendance.absent == {"there"}
    await attendance.close()
