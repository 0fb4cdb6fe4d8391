"""Few messages are on their way at a time, and those that do not come to their end are given up."""

from __future__ import annotations

import asyncio

import pytest

from controlplane.apiserver.edge.receive_slots import MOST_AT_ONCE, MOST_IN_LINE, MOST_OF_A_CONNECTION, ReceiveSlots
from controlplane.model.errors import Invalid, Unavailable


class Sender:
    """Sends one message, which is whole when the test says so."""

    def __init__(self) -> None:
        self.awaited = False
        self.whole = asyncio.Event()

    async def read(self) -> bytes:
        self.awaited = True
        await self.whole.wait()
        return b"message"


class Traffic:
    def __init__(self, receiving: ReceiveSlots) -> None:
        self._receiving = receiving
        self.senders: list[Sender] = []
        self.calls: list[asyncio.Task[bytes]] = []

    async def begin(self, connection: str, count: int) -> None:
        for _ in range(count):
            sender = Sender()
            self.senders.append(sender)
            self.calls.append(asyncio.create_task(self._receiving.message(sender.read, connection)))
        await asyncio.sleep(0)

    @property
    def awaited(self) -> int:
        return sum(sender.awaited for sender in self.senders)

    async def end(self) -> None:
        for sender in self.senders:
            sender.whole.set()
        await asyncio.gather(*self.calls)


async def test_of_one_connection_few_messages_are_waited_for_at_a_time() -> None:
    traffic = Traffic(ReceiveSlots())
    await traffic.begin("a", MOST_OF_A_CONNECTION + 3)
    assert traffic.awaited == MOST_OF_A_CONNECTION
    await traffic.begin("b", 1)
    assert traffic.awaited == MOST_OF_A_CONNECTION + 1
    await traffic.end()
    assert traffic.awaited == MOST_OF_A_CONNECTION + 4


async def test_of_all_connections_few_messages_are_waited_for_at_a_time() -> None:
    traffic = Traffic(ReceiveSlots())
    for number in range(MOST_AT_ONCE + 3):
        await traffic.begin(f"connection {number}", 1)
    assert traffic.awaited == MOST_AT_ONCE
    await traffic.end()
    assert traffic.awaited == MOST_AT_ONCE + 3


async def test_beyond_a_long_line_a_request_is_refused() -> None:
    receiving = ReceiveSlots()
    traffic = Traffic(receiving)
    await traffic.begin("a", MOST_AT_ONCE + MOST_IN_LINE)
    with pytest.raises(Unavailable):
        await receiving.message(Sender().read, "b")
    await traffic.end()
    whole = Sender()
    whole.whole.set()
    assert await receiving.message(whole.read, "b") == b"message"


async def test_a_message_that_does_not_come_to_its_end_is_given_up_and_the_next_has_its_turn() -> None:
    receiving = ReceiveSlots(seconds=0.01)
    endless = [asyncio.create_task(receiving.message(Sender().read, "a")) for _ in range(MOST_OF_A_CONNECTION)]
    await asyncio.sleep(0)
    whole = Sender()
    whole.whole.set()
    assert await receiving.message(whole.read, "a") == b"message"
    for outcome in await asyncio.gather(*endless, return_exceptions=True):
        assert isinstance(outcome, Invalid)
