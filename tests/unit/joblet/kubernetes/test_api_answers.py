"""What an error tells of a server's answer: a kubeconfig may name any server, not only a cluster's."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from aiohttp import web
from kubernetes.aio.client.api_client import ApiClient
from kubernetes.aio.client.configuration import Configuration

from controlplane.joblet.drivers.kubernetes.api import Answered, Api

NO_STATUS = "the answer is no Status of a cluster"
STATUS = {"kind": "Status", "reason": "Forbidden", "message": "pods is forbidden"}


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        (lambda: web.json_response(STATUS, status=403), "403 Forbidden: pods is forbidden"),
        (lambda: web.json_response({**STATUS, "reason": "a\nb"}, status=403), "403 Forbidden: pods is forbidden"),
        (lambda: web.json_response({"message": "hunter2"}, status=403), f"403 Forbidden: {NO_STATUS}"),
        (lambda: web.Response(text="hunter2", status=500), f"500 Internal Server Error: {NO_STATUS}"),
        (lambda: web.Response(reason="hunter2", status=599), f"599 Unknown: {NO_STATUS}"),
    ],
)  # fmt: skip
async def test_only_a_status_of_a_cluster_is_told(answer: Callable[[], web.Response], told: str) -> None:
    async def handle(request: web.Request) -> web.Response:
        return answer()

    app = web.Application()
    app.router.add_get("/pods", handle)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    settings = Configuration()
    settings.host = f"http://127.0.0.1:{runner.addresses[0][1]}"
    settings.retries = None
    api = Api(ApiClient(settings), seconds=5)
    try:
        with pytest.raises(Answered) as caught:
            await api.ask("GET", "/pods")
        assert str(caught.value) == told
    finally:
        await api.close()
        await runner.cleanup()
