"""A child process that asks until an embedded control plane is ready, because the supervisor must not use gRPC.

Ready means: every replica serves (gRPC health and /readyz) and is the process that was started here, a replica leads,
and every target is Ready. The child prints the missing part, a line for each change, and exits with 0 when ready; only
readiness or a signal ends the child.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Any

import aiohttp

from controlplane.client import Client
from controlplane.client.caller import CallTimeouts
from controlplane.client.health import is_serving
from controlplane.model.errors import ControlPlaneError
from controlplane.standalone.endpoints import EndpointSource
from controlplane.wire.transport import ChannelOpener, client_context, opener_for
from controlplane.wire.v1 import common_pb2

_PAUSE_SECONDS = 0.1
_ASK_SECONDS = 1.0


async def wait(folder: Path) -> None:
    where = EndpointSource(data_dir=folder)
    said = ""
    timeouts = CallTimeouts(1.0, _ASK_SECONDS, _ASK_SECONDS)
    opener = opener_for(where.ca_file())
    async with Client(where.current, token=where.token, ca_file=where.ca_file(), timeouts=timeouts) as client:
        while True:
            missing = await _missing(client, where.up(), opener)
            if not missing:
                return
            if missing != said:
                print(f"waiting for {missing}", flush=True)
                said = missing
            await asyncio.sleep(_PAUSE_SECONDS)


async def _missing(client: Client, up: dict[str, Any], opener: ChannelOpener) -> str:
    """The part that is not ready yet, as text; empty when all is ready."""
    served = await asyncio.gather(*(_serves(replica, opener) for replica in up["replicas"]))
    silent = [replica["id"] for replica, serves in zip(up["replicas"], served, strict=True) if not serves]
    if silent:
        return f"{', '.join(silent)} to serve"
    try:
        status = await client.cluster.status()
        strangers = others(up, {replica.id: replica.pid for replica in status.replicas})
        if strangers:
            return f"{', '.join(strangers)} to take part: another process answers, or it has only just begun"
        if not status.leader.id:
            return "a leader"
        page = await client.targets.page(common_pb2.ListRequest())
    except ControlPlaneError as error:
        return f"an answer ({error})"
    ready = {target.name for target in page.items if target.status.phase == "Ready"}
    missing = [joblet["target"] for joblet in up["joblets"] if joblet["target"] not in ready]
    return f"{', '.join(missing)} to be Ready" if missing else ""


def others(up: dict[str, Any], pids: dict[str, int]) -> list[str]:
    """The replicas whose pid in the cluster's status is not the pid of the process started here."""
    return [replica["id"] for replica in up["replicas"] if pids.get(replica["id"]) != replica["pid"]]


async def _serves(replica: dict[str, Any], opener: ChannelOpener) -> bool:
    if not await _readyz(replica["http"], opener):
        return False
    return bool(await is_serving(replica["grpc"], _ASK_SECONDS, opener))


async def _readyz(address: str, opener: ChannelOpener) -> bool:
    timeout = aiohttp.ClientTimeout(total=_ASK_SECONDS)
    tls = client_context(opener.trust.material) if opener.trust is not None else True
    try:
        async with (
            aiohttp.ClientSession(timeout=timeout) as session,
            session.get(f"{address}/readyz", ssl=tls) as answer,
        ):
            return answer.status == 200
    except (aiohttp.ClientError, TimeoutError):
        return False


if __name__ == "__main__":
    asyncio.run(wait(Path(sys.argv[1])))
