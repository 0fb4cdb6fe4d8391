"""Following an order to its end, through failures of replicas.

An order is watched at an endpoint. After 10 s without an event the watch moves to the next endpoint, because a replica
that is cut off from etcd still answers, but hears of no change.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from typing import Any

from controlplane.client import Client
from controlplane.model.errors import NotFound, Unavailable
from controlplane.model.lifecycle import FINAL_ORDER
from controlplane.wire import json_shapes
from controlplane.wire.v1 import common_pb2

_LOOK_SECONDS = 1.0
_LOOKS_UNTIL_DOUBT = 10
_PAUSE_SECONDS = 0.5

Tell = Callable[[str], None]


async def to_its_end(client: Client, identity: str, tell: Tell) -> dict[str, Any]:
    """The final order, without tasks. Never gives up; the caller sets the time limit."""
    last = ""
    async for item in looks(client, identity, tell):
        line = _progress(item)
        if line != last:
            tell(line)
            last = line
        if item["status"]["phase"] in FINAL_ORDER:
            return item
    raise AssertionError("looks never end")


def succeeded(item: dict[str, Any]) -> bool:
    return bool(item["status"]["phase"] == "Succeeded")


async def looks(client: Client, identity: str, tell: Tell) -> AsyncGenerator[dict[str, Any], None]:
    """Yields the order on every change, and reads it again once a second while it does not change. Never ends."""
    lost = False
    while True:
        try:
            async with aclosing(_watched(client, identity)) as looks:
                async for item in looks:
                    lost = False
                    yield item
        except Unavailable as error:
            if not lost:
                tell(f"{error}; trying on")
            lost = True
            await asyncio.sleep(_PAUSE_SECONDS)


async def _watched(client: Client, identity: str) -> AsyncGenerator[dict[str, Any], None]:
    """A single watch until 10 s of silence. After each silent second the order is read, for its reasons of waiting."""
    request = common_pb2.WatchRequest(name=identity, min_revision=client.revision)
    async with aclosing(client.orders.watch(request)) as events:
        silent = 0
        waiting = asyncio.ensure_future(anext(events))
        try:
            while silent < _LOOKS_UNTIL_DOUBT:
                if not (await asyncio.wait({waiting}, timeout=_LOOK_SECONDS))[0]:
                    silent += 1
                    yield json_shapes.plain("Order", await client.orders.get(identity))
                    continue
                silent, event = 0, waiting.result()
                if event.type == "delete":
                    raise NotFound(f"order {identity} was deleted")
                if event.type == "put":
                    yield json_shapes.plain("Order", event.object)
                waiting = asyncio.ensure_future(anext(events))
        finally:
            waiting.cancel()
            await asyncio.wait({waiting})
    client.leave_endpoint()


def _progress(item: dict[str, Any]) -> str:
    status = item["status"]
    counts = ", ".join(f"{count} {name}" for name, count in status["counts"].items() if count)
    reasons = ", ".join(f"{reason['reason']} ({reason['count']})" for reason in status["reasons"])
    waits = f"; waiting: {reasons}" if reasons else ""
    return f"{status['phase']}: {counts or 'no tasks yet'}{waits}"
