"""Following one order to its end through whatever happens to replicas in between.

Each look is a fresh watch at some endpoint. One that stays silent is left after a while for the next endpoint: a
replica that is cut off from etcd answers, but does not learn.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from typing import Any

from controlplane.cli import shapes
from controlplane.client import Client
from controlplane.model.errors import NotFound, Unavailable
from controlplane.model.lifecycle import FINAL_ORDER
from controlplane.wire.v1 import common_pb2

_LOOK_SECONDS = 1.0
_LOOKS_UNTIL_DOUBT = 10
_PAUSE_SECONDS = 0.5

Tell = Callable[[str], None]


async def to_its_end(client: Client, identity: str, tell: Tell) -> dict[str, Any]:
    """The order as it ended, without tasks. Never gives up; the caller sets the time limit."""
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
    """The order whenever it changed, and every moment in which it did not. Never ends by itself."""
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
    """One watch until it was silent for long. Where nothing happens for a moment, a read tells why."""
    request = common_pb2.WatchRequest(name=identity, min_revision=client.revision)
    async with aclosing(client.orders.watch(request)) as events:
        silent = 0
        waiting = asyncio.ensure_future(anext(events))
        try:
            while silent < _LOOKS_UNTIL_DOUBT:
                if not (await asyncio.wait({waiting}, timeout=_LOOK_SECONDS))[0]:
                    silent += 1
                    yield shapes.plain("Order", await client.orders.get(identity))
                    continue
                silent, event = 0, waiting.result()
                if event.type == "delete":
                    raise NotFound(f"order {identity} was deleted")
                if event.type == "put":
                    yield shapes.plain("Order", event.object)
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
