"""Plays the door of a kubelet at which the real API server asks for the logs of containers."""

from __future__ import annotations

import asyncio
import ssl
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from aiohttp import web

from tests.kubernetes.kubelet import Cluster, Json

Key = tuple[str, str]


class KubeletDoor:
    """What containers wrote, by (pod, container). A followed log goes on until it is ended, or broken off."""

    def __init__(self) -> None:
        self._written: dict[Key, bytearray] = {}
        self._over: set[Key] = set()
        self._changed = asyncio.Condition()
        self.asked: list[str] = []

    async def write(self, pod: str, container: str, data: bytes) -> None:
        async with self._changed:
            self._written.setdefault((pod, container), bytearray()).extend(data)
            self._changed.notify_all()

    async def let_go(self, pod: str, container: str) -> None:
        """Those who follow it hear its end now; those who come later hear what there is, and its end."""
        async with self._changed:
            self._over.add((pod, container))
            self._changed.notify_all()

    async def go_on(self, pod: str, container: str) -> None:
        self._over.discard((pod, container))

    async def answer(self, request: web.Request) -> web.StreamResponse:
        key = (request.match_info["pod"], request.match_info["container"])
        self.asked.append(request.query_string)
        if key not in self._written:
            return web.Response(status=400, text=f'container "{key[1]}" in pod "{key[0]}" is waiting to start')
        follow = request.query.get("follow") == "true"
        response = web.StreamResponse(headers={"Content-Type": "text/plain"})
        await response.prepare(request)
        sent = 0
        while True:
            async with self._changed:
                while follow and key not in self._over and len(self._written[key]) <= sent:
                    await self._changed.wait()
                data, over = bytes(self._written[key][sent:]), not follow or key in self._over
            if data:
                await response.write(data)
                sent += len(data)
            if over:
                return response


@asynccontextmanager
async def a_kubelet_door(cluster: Cluster, node: str, folder: Path) -> AsyncIterator[KubeletDoor]:
    """Behind the node, which the API server knows by its address and port."""
    door = KubeletDoor()
    app = web.Application()
    app.router.add_get("/containerLogs/{namespace}/{pod}/{container}", door.answer)
    runner = web.AppRunner(app, shutdown_timeout=0.5)
    await runner.setup()
    try:
        site = web.TCPSite(runner, "127.0.0.1", 0, ssl_context=certificate(folder))
        await site.start()
        await cluster.add_node(node)
        await reachable(cluster, node, int(runner.addresses[0][1]))
        yield door
    finally:
        await runner.cleanup()


async def reachable(cluster: Cluster, node: str, port: int) -> None:
    status: Json = {
        "addresses": [{"type": "InternalIP", "address": "127.0.0.1"}],
        "daemonEndpoints": {"kubeletEndpoint": {"Port": port}},
    }
    await cluster.ask("PATCH", f"/api/v1/nodes/{node}/status", {"status": status})


def certificate(folder: Path) -> ssl.SSLContext:
    folder.mkdir(parents=True, exist_ok=True)
    key, cert = folder / "kubelet.key", folder / "kubelet.crt"
    made = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=kubelet", "-days", "2"]
    subprocess.run([*made, "-keyout", str(key), "-out", str(cert)], check=True, capture_output=True)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(cert, key)
    return context
