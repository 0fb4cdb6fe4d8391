"""etcd as a whole: the cluster's id, the space in use, the oldest revision, and a copy of the database.

A member's answer is about that member: of several endpoints the fullest counts. Alarms belong to the whole cluster.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass

import grpc
from aetcd import rpc

from controlplane.model.errors import Compacted, Unavailable
from controlplane.store import keys
from controlplane.store.channel import Channels, translate
from controlplane.store.kv import Store
from controlplane.store.watch import watch

_ANSWER_SECONDS = 2.0
_NOSPACE = 1


@dataclass(frozen=True, slots=True)
class Condition:
    """`in_use` is the used part of the file's `size`; `alarm` is set when etcd refuses writes for want of space."""

    cluster_id: str
    version: str
    revision: int
    size: int
    in_use: int
    alarm: bool


async def condition(channels: Channels) -> Condition:
    """Unavailable when no member answers."""
    statuses = await asyncio.gather(*(_status(channel) for channel in channels.every()))
    answers = [answer for answer in statuses if answer is not None]
    if not answers:
        raise Unavailable("no member of etcd reports its status")
    request = rpc.AlarmRequest(action=0, memberID=0, alarm=0)
    alarms = await channels.read(lambda channel, left: rpc.MaintenanceStub(channel).Alarm(request, timeout=left))
    fullest = max(answers, key=lambda answer: answer.dbSizeInUse or answer.dbSize)
    return Condition(
        cluster_id=f"{fullest.header.cluster_id:x}",
        version=str(fullest.version),
        revision=max(int(answer.header.revision) for answer in answers),
        size=int(fullest.dbSize),
        in_use=int(fullest.dbSizeInUse or fullest.dbSize),
        alarm=any(raised.alarm == _NOSPACE for raised in alarms.alarms),
    )


async def _status(channel: grpc.aio.Channel) -> rpc.StatusResponse | None:
    try:
        return await rpc.MaintenanceStub(channel).Status(rpc.StatusRequest(), timeout=_ANSWER_SECONDS)
    except grpc.aio.AioRpcError:
        return None


async def oldest(store: Store) -> int:
    """The oldest revision that can still be listed."""
    try:
        await store.get(keys.ROOT, revision=1)
    except Compacted:
        pass
    else:
        return 1
    try:
        async for _ in watch(store.channels, keys.ROOT, 1):
            break
    except Compacted as compacted:
        return compacted.revision
    raise Unavailable("etcd does not say from which revision on its history is there")


async def snapshot(channels: Channels) -> AsyncIterator[bytes]:
    """etcd's whole file, then the checksum, piece by piece; Unavailable when the stream is broken off."""
    try:
        async for answer in rpc.MaintenanceStub(channels.current()).Snapshot(rpc.SnapshotRequest()):
            yield answer.blob
    except grpc.aio.AioRpcError as error:
        raise translate(error, applies=False) from None
