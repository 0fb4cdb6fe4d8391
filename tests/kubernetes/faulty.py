"""A proxy in front of the real API server that answers some requests wrongly, late or not at all, and counts them all.

It speaks plain HTTP to the joblet, so that a kubeconfig names it by its address. What no fault is meant for passes.
"""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import aiohttp
from aiohttp import web

from tests.etcd import free_ports
from tests.kubernetes.server import KubeServer

Pass = Callable[[], Awaitable[web.StreamResponse]]
Act = Callable[[web.Request, Pass], Awaitable[web.StreamResponse]]


@dataclass
class Fault:
    """For the next `times` requests of this kind, `create`, `delete`, `get`, `list`, `watch`, `patch` or `other`."""

    kind: str
    act: Act
    times: int = 1
    met: int = field(default=0)


def answers(status: int, reason: str, *, retry_after: int | None = None) -> Act:
    """Instead of the API, which hears nothing of it."""

    async def act(request: web.Request, go_on: Pass) -> web.StreamResponse:
        headers = {"Retry-After": str(retry_after)} if retry_after is not None else {}
        body = {"kind": "Status", "status": "Failure", "reason": reason, "code": status, "message": "injected"}
        return web.json_response(body, status=status, headers=headers)

    return act


def answers_after_the_effect(status: int, reason: str) -> Act:
    async def act(request: web.Request, go_on: Pass) -> web.StreamResponse:
        await go_on()
        return await answers(status, reason)(request, go_on)

    return act


async def silent_after_the_effect(request: web.Request, go_on: Pass) -> web.StreamResponse:
    """The API acts, and its answer never comes."""
    await go_on()
    await asyncio.Event().wait()
    raise AssertionError("nobody waits for ever")


async def silent_without_effect(request: web.Request, go_on: Pass) -> web.StreamResponse:
    await asyncio.Event().wait()
    raise AssertionError("nobody waits for ever")


def late(seconds: float) -> Act:
    """The client has given up by then; the API acts all the same."""

    async def act(request: web.Request, go_on: Pass) -> web.StreamResponse:
        body = await request.read()
        assert body

        async def later() -> None:
            await asyncio.sleep(seconds)
            await go_on()

        keep.add(task := asyncio.create_task(later()))
        task.add_done_callback(keep.discard)
        await asyncio.Event().wait()
        raise AssertionError("nobody waits for ever")

    keep: set[asyncio.Task[None]] = set()
    return act


async def gone(request: web.Request, go_on: Pass) -> web.StreamResponse:
    """A watch that has to begin anew, said as the API says it: in the stream."""
    status = {"kind": "Status", "code": 410, "reason": "Expired", "message": "too old resource version"}
    return web.Response(text=json.dumps({"type": "ERROR", "object": status}) + "\n", content_type="application/json")


class Faulty:
    """`requests` counts by kind, of pods; `others` counts the rest."""

    def __init__(self, server: KubeServer) -> None:
        self._server = server
        self._port = free_ports(1)[0]
        self.url = f"http://127.0.0.1:{self._port}"
        self.requests: Counter[str] = Counter()
        self.others: Counter[str] = Counter()
        self.faults: list[Fault] = []
        self._session: aiohttp.ClientSession | None = None
        self._runner: web.AppRunner | None = None

    def kubeconfig(self, folder: Path) -> Path:
        path = folder / f"kubeconfig-{self._port}.json"
        path.write_text(self._server.kubeconfig_for(url=self.url))
        return path

    def inject(self, kind: str, act: Act, times: int = 1) -> Fault:
        self.faults.append(fault := Fault(kind, act, times))
        return fault

    async def open(self) -> None:
        if self._session is None:
            connector = aiohttp.TCPConnector(ssl=self._server.trust, limit=0)
            self._session = aiohttp.ClientSession(
                connector=connector, timeout=aiohttp.ClientTimeout(total=None), auto_decompress=False
            )
        app = web.Application(client_max_size=16 << 20)
        app.router.add_route("*", "/{path:.*}", self._serve)
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1, handler_cancellation=True)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", self._port).start()

    async def away(self) -> None:
        """Connections end, new ones are refused."""
        if self._runner is not None:
            await self._runner.cleanup()
            self._runner = None

    async def close(self) -> None:
        await self.away()
        if self._session is not None:
            await self._session.close()

    async def _serve(self, request: web.Request) -> web.StreamResponse:
        kind = _kind(request)
        ours = "/pods" in request.path and request.path.startswith("/api/v1/namespaces/")
        (self.requests if ours else self.others)[kind] += 1
        for fault in self.faults:
            if ours and fault.kind == kind and fault.met < fault.times:
                fault.met += 1
                return await fault.act(request, lambda: self._pass(request, answer=False))
        return await self._pass(request, answer=True)

    async def _pass(self, request: web.Request, *, answer: bool) -> web.StreamResponse:
        assert self._session is not None
        kept = ("Authorization", "Content-Type", "Accept")
        headers = {name: request.headers[name] for name in kept if name in request.headers}
        url, body = f"{self._server.url}{request.path_qs}", await request.read()
        try:
            async with self._session.request(request.method, url, data=body or None, headers=headers) as got:
                if not answer:
                    return web.Response(status=got.status, body=await got.read())
                response = web.StreamResponse(status=got.status, headers={"Content-Type": got.content_type})
                await response.prepare(request)
                async for part in got.content.iter_any():
                    await response.write(part)
                with suppress(ConnectionError):
                    await response.write_eof()
                return response
        except aiohttp.ClientError:
            return web.Response(status=503, text="the API is away")


def _kind(request: web.Request) -> str:
    if request.method == "GET" and "watch" in request.query:
        return "watch"
    named = request.path.rstrip("/").endswith("/pods") is False
    if request.method == "GET":
        return "get" if named else "list"
    return {"POST": "create", "DELETE": "delete", "PATCH": "patch"}.get(request.method, "other")


@asynccontextmanager
async def faulty(server: KubeServer) -> AsyncIterator[Faulty]:
    proxy = Faulty(server)
    try:
        await proxy.open()
        yield proxy
    finally:
        await proxy.close()
