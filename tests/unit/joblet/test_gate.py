"""Whether a driver can do its work: told when it cannot, waited for until it can."""

from __future__ import annotations

import asyncio

from controlplane.joblet.gate import Gate


async def test_who_waits_goes_on_when_it_opens() -> None:
    gate = Gate(is_open=False)
    waiting = asyncio.create_task(gate.opened())
    await asyncio.sleep(0)
    assert not waiting.done()
    gate.open()
    await waiting
    assert gate.is_open


async def test_it_is_told_once_when_it_shuts() -> None:
    gate, told = Gate(), []
    gate.attach(lambda: told.append("shut"))
    gate.shut()
    gate.shut()
    assert told == ["shut"]
    assert not gate.is_open
    gate.open()
    gate.shut()
    assert told == ["shut", "shut"]
