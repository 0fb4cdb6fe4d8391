"""Replicas on a real etcd, a real joblet with real commands, and readers of logs. Only the leader is played."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import msgspec

from controlplane.model.errors import ControlPlaneError
from controlplane.model.fulfilment import Ended, EndedTask, Fulfilment, TaskRef, TaskSpec
from controlplane.model.leadership import Candidate
from controlplane.store import codec, keys, transaction
from controlplane.store.transaction import Item
from controlplane.wire import status_codes as wire_errors
from controlplane.wire.v1 import logs_pb2, orders_pb2, orders_pb2_grpc
from tests.component.api_stage import an_order
from tests.component.joblet_sessions.stage import Api, Talk, a_hello
from tests.component.joblet_stage import Stage as JobletStage
from tests.etcd import Etcd

TARGET = "here"
PATIENCE_SECONDS = 30.0
# gRPC would make its window larger and larger; here a reader who does not read is to be felt at once.
_OPTIONS = [("grpc.use_local_subchannel_pool", 1), ("grpc.http2.bdp_probe", 0)]


class LogsStage:
    def __init__(self, etcd: Etcd, folder: Path) -> None:
        self._etcd = etcd
        self.joblets = JobletStage(folder)
        self.apis: list[Api] = []
        self._channels: list[grpc.aio.Channel] = []
        self._talks: list[Talk] = []

    async def an_api(self) -> Api:
        """One more replica, which the others know from its candidacy."""
        name = f"replica-{len(self.apis) + 1}"
        api = Api(self._etcd, name)
        self.apis.append(api)
        await api.start()
        await api.follow()
        address = api.server.grpc_address
        candidate = Candidate(
            id=name, incarnation=api.ports.replica.incarnation, grpc=address, http="", pulse="", pid=1, version="1"
        )
        await api.put(keys.candidate(len(self.apis)), codec.encode(candidate))
        return api

    async def a_joblet(self, *apis: Api, **more: Any) -> Any:
        """Connected to the first of these replicas when it returns."""
        endpoints = tuple(api.server.grpc_address for api in apis)
        joblet = await self.joblets.started(target=TARGET, endpoints=endpoints, **more)
        await self.until(lambda: any(api.server.logs.has(TARGET) for api in apis))
        return joblet

    async def a_played_joblet(self, api: Api, **hello: Any) -> Talk:
        talk = Talk(api)
        self._talks.append(talk)
        await api.a_target(TARGET)
        await talk.send(a_hello(target=TARGET, **hello))
        await talk.until("synced")
        return talk

    async def an_order(self, count: int = 1) -> str:
        stub: Any = orders_pb2_grpc.OrdersStub(self._channel(self.apis[0]))
        answer: orders_pb2.OrderResponse = await stub.Submit(an_order(count=count))
        for api in self.apis:
            await api.cache.reached(answer.revision, PATIENCE_SECONDS)
        return answer.item.id

    async def place(self, order: str, *command: str, attempt: int = 1, index: int = 0) -> Fulfilment:
        """What a leader would write; returns when every replica knows."""
        task = TaskRef(job="job-1", index=index, attempt=attempt)
        fulfilment = await self.apis[0].desire(
            target=TARGET, order=order, tasks=(task,), jobs={"job-1": TaskSpec(command=command)}
        )
        await self.caught_up()
        return fulfilment

    async def end(self, placed: Fulfilment, decision: str = "done") -> None:
        """What a leader would write when it ended."""
        ref = placed.tasks[0]
        task = EndedTask(job=ref.job, index=ref.index, attempt=ref.attempt, phase="Succeeded", decision=decision)
        ended = Ended(id=placed.id, order=placed.order, target=placed.target, epoch=1, cycle=1, tasks=(task,), ended="")
        operations = (
            transaction.put(keys.ended(placed.order, placed.id), codec.encode(ended)),
            transaction.delete(keys.desired(placed.target, placed.id)),
            transaction.delete(keys.observed(placed.target, placed.id)),
        )
        await self.apis[0].store.commit(Item((), operations))
        await self.caught_up()

    async def caught_up(self) -> None:
        revision = await self.apis[0].store.revision()
        for api in self.apis:
            await api.cache.reached(revision, PATIENCE_SECONDS)

    async def until_phase(self, placed: Fulfilment, phase: str) -> None:
        def seen(api: Api) -> bool:
            entry = api.cache.snapshot.get(keys.INVENTORY, placed.target, placed.id)
            return entry is not None and msgspec.json.decode(entry.stored.value)["phase"] == phase

        await self.until(lambda: all(seen(api) for api in self.apis))

    async def until(self, holds: Any) -> None:
        async with asyncio.timeout(PATIENCE_SECONDS):
            while not holds():
                await asyncio.sleep(0.01)

    def logs(self, api: Api, order: str, **fields: Any) -> Reader:
        stub: Any = orders_pb2_grpc.OrdersStub(self._channel(api))
        return Reader(stub.Logs(logs_pb2.LogsRequest(id=order, **fields)))

    def _channel(self, api: Api) -> grpc.aio.Channel:
        channel = grpc.aio.insecure_channel(api.server.grpc_address, options=_OPTIONS)
        self._channels.append(channel)
        return channel

    async def close(self) -> None:
        for channel in self._channels:
            await channel.close()
        for talk in self._talks:
            await talk.close()
        await self.joblets.close()
        for api in self.apis:
            await api.close()


class Reader:
    """One call of `Orders.Logs`."""

    def __init__(self, call: Any) -> None:
        self.call = call
        self.notes: list[str] = []
        self.attempts: list[int] = []

    async def piece(self) -> logs_pb2.LogPiece | None:
        """The next one, None at the end that the replica told; notes are kept."""
        while True:
            async with asyncio.timeout(PATIENCE_SECONDS):
                chunk = await self.call.read()
            assert chunk is not grpc.aio.EOF, "it ended without saying so"
            if chunk.end:
                return None
            if chunk.note:
                self.notes.append(chunk.note)
                continue
            if chunk.attempt not in self.attempts:
                self.attempts.append(chunk.attempt)
            piece: logs_pb2.LogPiece = chunk.piece
            return piece

    async def until(self, text: bytes) -> bytes:
        told = b""
        while text not in told:
            piece = await self.piece()
            assert piece is not None, told
            told += piece.data
        return told

    async def rest(self) -> bytes:
        told = b""
        while (piece := await self.piece()) is not None:
            told += piece.data
        return told

    async def refusal(self) -> ControlPlaneError:
        try:
            await self.rest()
        except grpc.aio.AioRpcError as error:
            return wire_errors.from_rpc(error)
        raise AssertionError("it was not refused")


@asynccontextmanager
async def a_stage(etcd: Etcd, folder: Path) -> AsyncIterator[LogsStage]:
    stage = LogsStage(etcd, folder)
    try:
        yield stage
    finally:
        await stage.close()
