"""The turnstile: submits wait here for their turn while the leader is behind.

Owners take turns, so a flood of one owner delays others for a moment, not for the whole flood. A submit with too long a
wait is refused with the time for its retry, and nothing was written.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from controlplane.aio.clock import Clock
from controlplane.apiserver.commands.pressure import LeaderLag, Pressure
from controlplane.cache.ledgers import Ledgers
from controlplane.cache.reflector import Delta
from controlplane.model.errors import LimitExceeded
from controlplane.store import keys

# The longest wait of a submit for its turn, and the time until the retry of a refused submit.
PATIENCE_SECONDS = 1.0
RETRY_AFTER_SECONDS = 2.0
# So many seconds' worth of orders may pass at once after a quiet moment.
_BURST_SECONDS = 0.1


class _Decided(msgspec.Struct):
    """The part of a cycle's record which is needed here."""

    revision: int = 0
    seconds: float = 0.0


class _Waiting(NamedTuple):
    orders: int
    turn: asyncio.Future[None]


class Turnstile:
    def __init__(self, ledgers: Ledgers, clock: Clock, *, patience_seconds: float = PATIENCE_SECONDS) -> None:
        self._ledgers = ledgers
        self._patience_seconds = patience_seconds
        self._clock = clock
        self._pressure = Pressure()
        self._lag = LeaderLag()
        # Waiting submits by owner; the owner in front is served next.
        self._queues: dict[str, deque[_Waiting]] = {}
        self._allowance = 0.0
        self._filled = 0.0
        self._serving: asyncio.Task[None] | None = None
        self._decoder = msgspec.json.Decoder(_Decided)
        ledgers.cache.subscribe(self._hear)

    async def enter(self, owner: str, orders: int) -> None:
        """Returns at the turn of so many orders of the owner; LimitExceeded when the turn does not come in time."""
        if self._queues or self._rate() is not None:
            await self._wait(owner, orders)
        self._pressure.count(orders, self._clock.monotonic())

    def _rate(self) -> float | None:
        return self._pressure.look(self._ledgers.waiting_orders, self._clock.monotonic())

    async def _wait(self, owner: str, orders: int) -> None:
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._queues.setdefault(owner, deque()).append(_Waiting(orders, turn))
        if self._serving is None or self._serving.done():
            self._serving = asyncio.create_task(self._serve())
        try:
            async with asyncio.timeout(self._patience_seconds):
                await turn
        except TimeoutError:
            message = "more orders come than the leader can place"
            again = f"try again in {RETRY_AFTER_SECONDS:.0f} s"
            raise LimitExceeded(f"{message}; {again}", retry_after_seconds=RETRY_AFTER_SECONDS) from None

    async def _serve(self) -> None:
        """Lets one submit of each owner after the other pass, as fast as the rate allows."""
        self._filled = self._clock.monotonic()
        while self._queues:
            owner, waiting = next(iter(self._queues.items()))
            while waiting and waiting[0].turn.done():
                # The caller has left.
                waiting.popleft()
            if not waiting:
                del self._queues[owner]
                continue
            delay = self._fill()
            if delay > 0:
                await self._clock.sleep(delay)
                continue
            first = waiting.popleft()
            first.turn.set_result(None)
            # A large batch counts for a second at most, so as not to shut other submits out for long.
            self._allowance = max(self._allowance - first.orders, -PATIENCE_SECONDS * (self._rate() or 0.0))
            # Behind all other waiting owners.
            self._queues[owner] = self._queues.pop(owner)

    def _fill(self) -> float:
        """Seconds until the next submit may pass; 0 for now."""
        now, rate = self._clock.monotonic(), self._rate()
        if rate is None:
            self._allowance = 0.0
            return 0.0
        self._allowance = min(rate * _BURST_SECONDS, self._allowance + rate * (now - self._filled))
        self._filled = now
        return max(0.0, -self._allowance / rate)

    def _hear(self, deltas: Sequence[Delta], revision: int) -> None:
        now = self._clock.monotonic()
        for delta in deltas:
            if delta.tree == keys.CYCLES and delta.new is not None:
                try:
                    decided = self._decoder.decode(delta.new.stored.value)
                except msgspec.MsgspecError:
                    continue
                # The time of deciding grows with waiting orders and with targets: deciding is no delay.
                lag_seconds = self._lag.of(decided.revision, now) - max(0.0, decided.seconds)
                self._pressure.decided(lag_seconds, self._ledgers.waiting_orders, now)
        self._lag.hear(revision, now)
