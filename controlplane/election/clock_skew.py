"""Clock skew: each replica reads the wall clocks of its peers from their pulses and names the clocks that are off.

A clock is off when most other clocks disagree with its time. Clock skew decides nothing: leases, grace times and
silences run on monotonic time. But deadlines, windows and schedules are wall-clock times given by people, and move
with the clock of the leader.

With the cluster key, the time of a peer that should prove itself and does not is left out. The question ends with the
answer of the peer, so no proof of this replica follows.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from itertools import chain, repeat
from statistics import median

import structlog

from controlplane.aio.clock import Clock
from controlplane.election import message
from controlplane.election.follower_handshake import FollowerHandshake
from controlplane.election.pulse_proof import PulseProver
from controlplane.election.view import View
from controlplane.model import address
from controlplane.model.errors import Invalid
from controlplane.model.leadership import Candidate

log = structlog.get_logger(__name__)

LOOK_SECONDS = 5.0
# More often at first, so that a replica that starts with a wrong clock is named soon.
_FIRST_LOOKS = (1.0,) * 5
# Clocks that are synchronised differ by less.
TOLERANCE_SECONDS = 5.0
# A slower answer says too little about the peer's clock.
_ANSWER_SECONDS = 1.0


def skewed_clocks(clocks: Mapping[str, float]) -> dict[str, float]:
    """The clocks that are far from more than half of the others, with the median difference in seconds.

    Of only two clocks that differ, both are named.
    """
    skewed = {}
    for name, own in clocks.items():
        away = [own - other for peer, other in clocks.items() if peer != name]
        far = sum(abs(seconds) > TOLERANCE_SECONDS for seconds in away)
        if 2 * far > len(away):
            skewed[name] = median(away)
    return skewed


class ClockSkew:
    def __init__(self, view: View, own: Candidate, clock: Clock, *, prover: PulseProver | None = None) -> None:
        self._view = view
        self._own = own
        self._clock = clock
        self._prover = prover
        self.off: Mapping[str, float] = {}

    async def run(self) -> None:
        """Compares the clocks periodically; never returns."""
        for seconds in chain(_FIRST_LOOKS, repeat(LOOK_SECONDS)):
            await self._clock.sleep(seconds)
            try:
                self._tell(skewed_clocks(await self._look()))
            except Exception:
                # The time that a peer reports must never end this replica.
                log.exception("the wall clocks of the replicas cannot be compared")

    async def _look(self) -> dict[str, float]:
        """Seconds by which each replica's clock is ahead of the own clock; replicas that report no time are omitted."""
        peers = {entry.candidate.id: entry.candidate for entry in self._view.candidates()}
        peers.pop(self._own.id, None)
        answers = await asyncio.gather(*(self._ask(peer) for peer in peers.values()))
        answered = {name: ahead for name, ahead in zip(peers, answers, strict=True) if ahead is not None}
        return {self._own.id: 0.0, **answered}

    async def _ask(self, peer: Candidate) -> float | None:
        handshake = FollowerHandshake(self._own.incarnation, peer, self._prover)
        sent = self._clock.monotonic()
        try:
            host, port = address.parse(peer.pulse, "pulse")
            async with asyncio.timeout(_ANSWER_SECONDS):
                reader, writer = await asyncio.open_connection(host, port, limit=message.LONGEST)
                try:
                    writer.write(handshake.hello())
                    pulse = message.read_pulse((await reader.readline()).rstrip(b"\n"))
                finally:
                    writer.close()
        except (OSError, Invalid, ValueError, OverflowError, TimeoutError):
            return None
        took = self._clock.monotonic() - sent
        # A stranger at the address of a dead peer could pass on, with another time, what a living replica proves.
        if pulse is None or pulse.incarnation != peer.incarnation or not handshake.is_believed(pulse):
            return None
        if not pulse.wall:
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
