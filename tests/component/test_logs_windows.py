"""A reader who does not read stops the sending of its log, and nothing else. The joblet is played, on the wire."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from controlplane.apiserver.logs.log_broker import MOST_TAPS, WINDOW_BYTES
from controlplane.model.errors import Broken, LimitExceeded, Refused
from controlplane.wire.v1.joblets_pb2 import Heartbeat, JobletMessage
from controlplane.wire.v1.logs_pb2 import LogChunk, LogPiece
from tests.component.joblet_sessions.stage import Api, Talk
from tests.component.logs_stage import PATIENCE_SECONDS, LogsStage, Reader, a_stage
from tests.etcd import Etcd

CHUNK = b"x" * (64 << 10)
# What gRPC itself buffers on its way, generously.
TRANSPORT_BYTES = 1 << 20


@pytest.fixture
async def stage(etcd: Etcd, tmp_path: Path) -> AsyncIterator[LogsStage]:
    async with a_stage(etcd, tmp_path) as stage:
        yield stage


async def running(stage: LogsStage, api: Api, **hello: Any) -> tuple[Talk, str]:
    """A joblet that reported one task as running, and the order."""
    talk = await stage.a_played_joblet(api, **hello)
    live = await api.live("here")
    assert live is not None
    talk.session = live[1].session
    order = await stage.an_order()
    placed = await stage.place(order, "true")
    ack = await talk.report(placed, "Running", 0)
    await api.cache.reached(ack.observed_revision, 10)
    return talk, order


def a_chunk(log: int, offset: int, **more: Any) -> JobletMessage:
    return JobletMessage(
        log_chunk=LogChunk(log=log, piece=LogPiece(stream="stdout", offset=offset, data=CHUNK), **more)
    )


async def opened(talk: Talk, reader: Reader) -> tuple[Any, asyncio.Task[Any]]:
    """What the joblet is asked; the reader's first piece is on its way."""
    first = asyncio.ensure_future(reader.piece())
    return await talk.until("open_log"), first


async def granted(talk: Talk, beats: int) -> int:
    """What was granted while so many heartbeats were answered."""
    credit = 0
    for number in range(1, beats + 1):
        await talk.send(JobletMessage(heartbeat=Heartbeat(number=number)))
        while (found := await talk.next())[0] != "heartbeat_ack" or found[1].number != number:
            credit += found[1].credit if found[0] == "grant_log" else 0
    return credit


async def test_a_reader_who_stops_is_sent_no_more_than_fits_and_delays_nothing_else(stage: LogsStage) -> None:
    api = await stage.an_api()
    talk, order = await running(stage, api, logs=True)
    reader = stage.logs(api, order, follow=True)
    asked, first = await opened(talk, reader)
    assert asked.credit == WINDOW_BYTES
    assert (asked.query.order, asked.query.attempt, asked.query.follow) == (order, 1, True)
    credit, sent = asked.credit, 0
    while credit > 0:
        while credit > 0:
            await talk.send(a_chunk(asked.log, sent))
            credit, sent = credit - len(CHUNK), sent + len(CHUNK)
        credit += await granted(talk, beats=20)
        assert sent < WINDOW_BYTES + TRANSPORT_BYTES, "nobody reads, and still more is asked for"
    await first
    for _ in range(sent // len(CHUNK) - 1):
        await reader.piece()
    async with asyncio.timeout(PATIENCE_SECONDS):
        while not credit:
            credit = await granted(talk, beats=1)


async def test_a_reader_who_leaves_is_told_to_the_joblet(stage: LogsStage) -> None:
    api = await stage.an_api()
    talk, order = await running(stage, api, logs=True)
    reader = stage.logs(api, order, follow=True)
    asked, first = await opened(talk, reader)
    reader.call.cancel()
    await asyncio.wait([first])
    assert (await talk.until("close_log")).log == asked.log
    await talk.send(a_chunk(asked.log, 0))
    await talk.beat(1)


async def test_a_joblet_that_sends_more_than_it_may_is_not_believed(stage: LogsStage) -> None:
    api = await stage.an_api()
    talk, order = await running(stage, api, logs=True)
    reader = stage.logs(api, order)
    asked, first = await opened(talk, reader)
    piece = LogPiece(stream="stdout", offset=0, data=b"x" * (WINDOW_BYTES + 1))
    await talk.send(JobletMessage(log_chunk=LogChunk(log=asked.log, piece=piece)))
    await asyncio.wait([first])
    assert isinstance(await reader.refusal(), Broken)
    await talk.beat(1)


async def test_a_joblet_of_an_older_version_is_not_asked(stage: LogsStage) -> None:
    api = await stage.an_api()
    talk, order = await running(stage, api)
    refused = await stage.logs(api, order).refusal()
    assert type(refused) is Refused
    assert "version" in str(refused)
    await talk.beat(1)


async def test_an_error_of_the_joblet_reaches_the_reader_as_it_is(stage: LogsStage) -> None:
    api, far = await stage.an_api(), await stage.an_api()
    talk, order = await running(stage, api, logs=True)
    await far.cache.reached(await far.store.revision(), 10)
    reader = stage.logs(far, order)
    asked, first = await opened(talk, reader)
    await talk.send(
        JobletMessage(log_chunk=LogChunk(log=asked.log, end=True, code="LimitExceeded", message="too many"))
    )
    await asyncio.wait([first])
    error = await reader.refusal()
    assert isinstance(error, LimitExceeded)
    assert str(error) == "too many"


async def test_only_so_many_logs_of_a_target_are_read_at_a_time(stage: LogsStage) -> None:
    api = await stage.an_api()
    talk, order = await running(stage, api, logs=True)
    readers = [stage.logs(api, order, follow=True) for _ in range(MOST_TAPS)]
    for _ in readers:
        await talk.until("open_log")
    assert isinstance(await stage.logs(api, order).refusal(), LimitExceeded)
    readers[0].call.cancel()
    await talk.until("close_log")
    stage.logs(api, order)
    await talk.until("open_log")
