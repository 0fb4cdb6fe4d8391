"""Whose wall clock is off: every replica reads the others' off their pulses, and names those that most disagree with.

Nothing is decided by it. Leases, grace times and silences run on monotonic time; but deadlines, windows and schedules
are times of people, and move with the clock of whoever leads.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from itertools import chain, repeat
from statistics import median

import structlog

from controlplane.aio.clock import Clock
from controlplane.election import message
from controlplane.election.view import View
from controlplane.model.leadership import Candidate

log = structlog.get_logger(__name__)

LOOK_SECONDS = 5.0
# At first more often: whoever starts with a clock that is off should not have to wait to know.
_FIRST_LOOKS = (1.0,) * 5
# Clocks that are kept differ by less, and an answer that takes longer than the other tells nothing.
TOLERANCE_SECONDS = 5.0
_ANSWER_SECONDS = 1.0


def odd_ones(clocks: Mapping[str, float]) -> dict[str, float]:
    """Those that are far from more than half of the others, and by how many seconds: of two that differ, both."""
    found = {}
    for name, own in clocks.items():
        away = [own - other for who, other in clocks.items() if who != name]
        far = sum(abs(seconds) > TOLERANCE_SECONDS for seconds in away)
        if 2 * far > len(away):
            found[name] = median(away)
    return found


class Clocks:
    def __init__(self, view: View, own: Candidate, clock: Clock) -> None:
        self._view = view
        self._own = own
        self._clock = clock
        self._hello = message.write(message.Hello(hello=own.incarnation))
        self.off: Mapping[str, float] = {}

    async def run(self) -> None:
        """Looks again and again; never returns."""
        for seconds in chain(_FIRST_LOOKS, repeat(LOOK_SECONDS)):
            await self._clock.sleep(seconds)
            try:
                self._tell(odd_ones(await self._look()))
            except Exception:
                # Whatever a peer says of its clock, it must not end this replica.
                log.exception("the clocks of the others cannot be compared")

    async def _look(self) -> dict[str, float]:
        """How far each replica's clock is ahead of this one's. Who does not answer, or does not say, is left out."""
        peers = {entry.candidate.id: entry.candidate.pulse for entry in self._view.candidates()}
        peers.pop(self._own.id, None)
        answers = await asyncio.gather(*(self._ask(address) for address in peers.values()))
        known = {name: ahead for name, ahead in zip(peers, answers, strict=True) if ahead is not None}
        return {self._own.id: 0.0, **known}

    async def _ask(self, address: str) -> float | None:
        host, _, port = address.rpartition(":")
        sent = self._clock.monotonic()
        try:
            async with asyncio.timeout(_ANSWER_SECONDS):
                reader, writer = await asyncio.open_connection(host.strip("[]"), int(port), limit=message.LONGEST)
                try:
                    writer.write(self._hello)
                    pulse = message.read_pulse((await reader.readline()).rstrip(b"\n"))
                finally:
                    writer.close()
        except (OSError, ValueError, OverflowError, TimeoutError):
            return None
        took = self._clock.monotonic() - sent
        if pulse is None or not pulse.wall:
            return None
        return pulse.wall - (self._clock.wall().timestamp() - took / 2)

    def _tell(self, off: Mapping[str, float]) -> None:
        for name, seconds in off.items():
            if name not in self.off:
                log.warning("the wall clock of a replica is off", replica=name, seconds=round(seconds, 1))
        for name in self.off:
            if name not in off:
                log.info("the wall clock of a replica is no longer off", replica=name)
        self.off = off
