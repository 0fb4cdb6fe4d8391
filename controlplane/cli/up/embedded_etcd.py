"""The embedded etcd, seen by its supervisor: whether it serves, and whether an hour of history fits its quota.

etcd compacts by itself what is older than an hour. When half of the quota is in use before that, everything older
than ten minutes goes, and the supervisor says so. Talks to etcd's HTTP gateway: the supervisor must not use gRPC.
"""

from __future__ import annotations

import asyncio
import json
import urllib.request
from collections import deque
from collections.abc import Callable
from typing import Any

from controlplane.aio.clock import Clock
from controlplane.cli.up.parts import QUOTA_BYTES

_LOOK_SECONDS = 60.0
_KEEP_LOOKS = 10
_ANSWER_SECONDS = 5.0
# What is on this machine is never reached through a proxy.
_OPENER = urllib.request.build_opener(urllib.request.ProxyHandler({}))


class History:
    def __init__(self, url: str, clock: Clock, tell: Callable[[str], None]) -> None:
        self._url = url
        self._clock = clock
        self._tell = tell
        self._revisions: deque[int] = deque(maxlen=_KEEP_LOOKS + 1)

    async def keep_short(self) -> None:
        while True:
            await self._clock.sleep(_LOOK_SECONDS)
            try:
                await asyncio.to_thread(self._look)
            except (OSError, ValueError):
                continue  # etcd may be on its way up again; the next look will tell

    def _look(self) -> None:
        status = self._ask("/v3/maintenance/status", {})
        self._revisions.append(int(status["header"]["revision"]))
        in_use = int(status.get("dbSizeInUse", status.get("dbSize", 0)))
        if in_use > QUOTA_BYTES // 2:
            oldest = self._revisions[0]
            self._tell(f"etcd uses {in_use / 2**30:.1f} GiB, more than half of its quota: history before {oldest} goes")
            self._ask("/v3/kv/compaction", {"revision": oldest})

    def _ask(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        request = urllib.request.Request(self._url + path, json.dumps(body).encode(), method="POST")
        with _OPENER.open(request, timeout=_ANSWER_SECONDS) as answer:
            content: dict[str, Any] = json.load(answer)
        return content


def is_healthy(url: str) -> bool:
    """Whether etcd serves there."""
    try:
        with _OPENER.open(f"{url}/health", timeout=_ANSWER_SECONDS) as answer:
            return bool(json.load(answer).get("health") == "true")
    except (OSError, ValueError):
        return False
