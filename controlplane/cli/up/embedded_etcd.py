"""The embedded etcd, seen by its supervisor: whether it serves, and whether an hour of history fits its quota.

etcd compacts by itself what is older than an hour. When half of the quota is in use before that, everything older
than ten minutes goes, and the supervisor says so. The supervisor must not use gRPC, and etcd serves no HTTP gateway:
it would let any web page that a browser on this machine shows write orders. So a child asks (`etcd_look`).
"""

from __future__ import annotations

import asyncio
import json
import urllib.request
from collections import deque
from collections.abc import Callable

from controlplane.aio.clock import Clock
from controlplane.cli.up.parts import PYTHON, QUOTA_BYTES
from controlplane.model.errors import Unavailable

_LOOK_SECONDS = 60.0
_KEEP_LOOKS = 10
_ANSWER_SECONDS = 5.0
# A child takes a moment to start on a busy machine.
_CHILD_SECONDS = 30.0
# What is on this machine is never reached through a proxy.
_OPENER = urllib.request.build_opener(urllib.request.ProxyHandler({}))


class History:
    def __init__(self, url: str, clock: Clock, tell: Callable[[str], None], *, quota: int = QUOTA_BYTES) -> None:
        self._url = url
        self._clock = clock
        self._tell = tell
        self._quota = quota
        self._revisions: deque[int] = deque(maxlen=_KEEP_LOOKS + 1)

    async def keep_short(self) -> None:
        while True:
            await self._clock.sleep(_LOOK_SECONDS)
            try:
                await self.look()
            except Unavailable:
                continue  # etcd may be on its way up again; the next look will tell

    async def look(self) -> None:
        status = await ask(self._url)
        self._revisions.append(status["revision"])
        if status["in_use"] > self._quota // 2:
            oldest, used = self._revisions[0], status["in_use"] / 2**30
            self._tell(f"etcd uses {used:.1f} GiB, more than half of its quota: history before {oldest} goes")
            await ask(self._url, oldest)


async def ask(url: str, compact: int = 0) -> dict[str, int]:
    """`etcd_look` by a child; Unavailable when etcd does not answer."""
    arguments = (url, str(compact)) if compact else (url,)
    child = await asyncio.create_subprocess_exec(
        *PYTHON, "controlplane.cli.up.etcd_look", *arguments,
        stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    try:
        async with asyncio.timeout(_CHILD_SECONDS):
            answer, why = await child.communicate()
    except TimeoutError:
        raise Unavailable("etcd was not asked in time") from None
    finally:
        if child.returncode is None:
            child.kill()
            await child.wait()
    if child.returncode != 0:
        raise Unavailable(f"etcd does not tell how it is: {why.decode(errors='replace').strip()}")
    told: dict[str, int] = json.loads(answer)
    return told


def is_healthy(url: str) -> bool:
    """Whether etcd serves there."""
    try:
        with _OPENER.open(f"{url}/health", timeout=_ANSWER_SECONDS) as answer:
            return bool(json.load(answer).get("health") == "true")
    except (OSError, ValueError):
        return False
