"""A watch stream that is cut and a reader that is cancelled in the same moment."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from controlplane.model.errors import Unavailable
from controlplane.store.watch import WatchProgress, _WatchCall


class Call:
    """A watch call on which nothing ever comes; cancelling it cancels who reads."""

    def __init__(self) -> None:
        self._answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

    async def read(self) -> Any:
        return await self._answer

    def cancel(self) -> None:
        self._answer.cancel()


class Channel:
    def __init__(self) -> None:
        self.call = Call()

    def stream_stream(self, *_names: object, **_options: object) -> Any:
        return lambda **_call: self.call

    unary_unary = unary_stream = stream_stream


async def reading() -> tuple[_WatchCall, Channel, asyncio.Task[Any]]:
    channel = Channel()
    line = _WatchCall(channel, lambda: None, WatchProgress())  # type: ignore[arg-type]
    task = asyncio.create_task(line.read())
    await asyncio.sleep(0)
    return line, channel, task


async def test_the_reader_of_a_stream_that_is_cut_hears_that_it_is_unavailable() -> None:
    line, channel, task = await reading()
    line._cut = True
    channel.call.cancel()
    with pytest.raises(Unavailable):
        await task
    await line.close()


@pytest.mark.parametrize("first", ["cut", "cancelled"])
async def test_a_reader_that_is_cancelled_as_its_stream_is_cut_stays_cancelled(first: str) -> None:
    line, channel, task = await reading()
    line._cut = True
    if first == "cut":
        channel.call.cancel()
        task.cancel()
    else:
        task.cancel()
        channel.call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert task.cancelled()
    await line.close()
