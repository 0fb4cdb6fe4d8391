"""A management cluster: the real API server with the definition of a MachineDeployment, and a front that may fail.

The front stands between a provider and the API: it answers for it, loses its answers, or lets the asker die.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
from aiohttp import web

from tests.kubernetes.kubelet import Cluster, Json
from tests.kubernetes.server import KubeServer

CRD = Path(__file__).with_name("machine_deployment_crd.json")
_DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
_REF = {"apiVersion": "infrastructure.cluster.x-k8s.io/v1beta1", "kind": "MachineTemplate", "name": "small"}
TEMPLATE: Json = {
    "apiVersion": "cluster.x-k8s.io/v1beta1",
    "kind": "MachineDeployment",
    "metadata": {"name": "pool", "labels": {"team": "film"}},
    "spec": {
        "clusterName": "pool",
        "replicas": 0,
        "selector": {"matchLabels": {"pool": "pool"}},
        "template": {
            "metadata": {"labels": {"pool": "pool"}},
            "spec": {
                "clusterName": "pool",
                "version": "v1.31.0",
                "bootstrap": {"dataSecretName": "joins-and-starts-a-joblet"},
                "infrastructureRef": _REF,
            },
        },
    },
}


async def define(cluster: Cluster, namespace: str) -> str:
    """The kind is known and the namespace has a template; the path of its MachineDeployments."""
    definition = json.loads(CRD.read_text())
    await cluster.ask("POST", _DEFINITIONS, definition, allow=(409,))
    await cluster.add_namespace(namespace)
    path = f"/apis/cluster.x-k8s.io/v1beta1/namespaces/{namespace}/machinedeployments"
    async with asyncio.timeout(60):
        while (await cluster.ask("POST", path, TEMPLATE, allow=(404, 409))).get("code") == 404:
            await asyncio.sleep(0.1)
    return path


class Front:
    """`answers`: what it says by itself to the next requests, None to let one pass; `swallows`: how many requests it
    passes on without ever answering."""

    def __init__(self, server: KubeServer) -> None:
        self._server = server
        self.url = ""
        self.requests: list[str] = []
        self.answers: list[tuple[int, dict[str, str]] | None] = []
        self.swallows: list[str] = []
        self._over = asyncio.Event()
        self._session: aiohttp.ClientSession | None = None

    async def take(self, request: web.Request) -> web.StreamResponse:
        self.requests.append(request.method)
        answer = self.answers.pop(0) if self.answers else None
        if answer is not None:
            status, headers = answer
            return web.json_response({"kind": "Status", "code": status}, status=status, headers=headers)
        assert self._session is not None
        url = f"{self._server.url}{request.raw_path}"
        headers = {name: request.headers[name] for name in ("Authorization", "Content-Type") if name in request.headers}
        async with self._session.request(request.method, url, data=await request.read(), headers=headers) as got:
            body, status = await got.read(), got.status
        if request.method in self.swallows:
            self.swallows.remove(request.method)
            await self._over.wait()
        return web.Response(body=body, status=status, content_type="application/json")

    @asynccontextmanager
    async def running(self) -> AsyncIterator[Front]:
        app = web.Application()
        app.router.add_route("*", "/{path:.*}", self.take)
        runner = web.AppRunner(app, shutdown_timeout=0)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        self.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
        connector = aiohttp.TCPConnector(ssl=self._server.trust)
        async with aiohttp.ClientSession(connector=connector) as session:
            self._session = session
            try:
                yield self
            finally:
                self._over.set()
                await runner.cleanup()
