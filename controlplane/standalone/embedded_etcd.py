"""The embedded etcd as its supervisor sees it: whether etcd serves, and whether an hour of history fits its quota.

etcd itself compacts history older than an hour. When half of the quota is in use before then, history older than ten
minutes is compacted too, and the supervisor says so. The supervisor must not use gRPC, and etcd serves no HTTP gateway,
since any web page in a browser on this machine could write orders through a gateway. So a child asks (`etcd_look`).
"""

from __future__ import annotations

import asyncio
import json
import ssl
import urllib.request
from collections import deque
from collections.abc import Callable

from controlplane.aio.clock import Clock
from controlplane.model.errors import Unavailable
from controlplane.standalone.endpoints import PLAIN_ETCD, EtcdFiles
from controlplane.standalone.process_plan import PYTHON, QUOTA_BYTES

_LOOK_SECONDS = 60.0
_KEEP_LOOKS = 10
_ANSWER_SECONDS = 5.0
# A child takes a moment to start on a busy machine.
_CHILD_SECONDS = 30.0


class HistoryLimit:
    """Compacts the embedded etcd early while more than half of `quota` bytes is in use."""

    def __init__(
        self,
        url: str,
        clock: Clock,
        tell: Callable[[str], None],
        *,
        quota: int = QUOTA_BYTES,
        tls: EtcdFiles = PLAIN_ETCD,
    ) -> None:
        self._url = url
        self._tls = tls
        self._clock = clock
        self._tell = tell
        self._quota = quota
        self._revisions: deque[int] = deque(maxlen=_KEEP_LOOKS + 1)

    async def keep_short(self) -> None:
        while True:
            await self._clock.sleep(_LOOK_SECONDS)
            try:
                await self.enforce()
            except Unavailable:
                continue  # etcd may be restarting; the next round asks again

    async def enforce(self) -> None:
        status = await ask(self._url, tls=self._tls)
        self._revisions.append(status["revision"])
        if status["in_use"] > self._quota // 2:
            oldest, used = self._revisions[0], status["in_use"] / 2**30
            self._tell(f"etcd uses {used:.1f} GiB, more than half of its quota: history before {oldest} is compacted")
            await ask(self._url, oldest, tls=self._tls)


async def ask(url: str, compact: int = 0, *, tls: EtcdFiles = PLAIN_ETCD) -> dict[str, int]:
    """The answer of `etcd_look`, run as a child; Unavailable when etcd does not answer."""
    arguments = (url, str(compact), *tls)
    child = await asyncio.create_subprocess_exec(
        *PYTHON, "controlplane.standalone.etcd_look", *arguments,
        stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    try:
        async with asyncio.timeout(_CHILD_SECONDS):
            answer, reason = await child.communicate()
    except TimeoutError:
        raise Unavailable("etcd was not asked in time") from None
    finally:
        if child.returncode is None:
            child.kill()
            await child.wait()
    if child.returncode != 0:
        raise Unavailable(f"etcd does not report its status: {reason.decode(errors='replace').strip()}")
    status: dict[str, int] = json.loads(answer)
    return status


def is_healthy(url: str, tls: EtcdFiles = PLAIN_ETCD) -> bool:
    """Whether an etcd serves at the URL."""
    # Servers on this machine are never reached through a proxy.
    handlers: list[urllib.request.BaseHandler] = [urllib.request.ProxyHandler({})]
    if tls.ca:
        handlers.append(urllib.request.HTTPSHandler(context=_context(tls)))
    try:
        with urllib.request.build_opener(*handlers).open(f"{url}/health", timeout=_ANSWER_SECONDS) as answer:
            return bool(json.load(answer).get("health") == "true")
    except (OSError, ValueError):
        return False


def _context(tls: EtcdFiles) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=tls.ca)
    context.load_cert_chain(tls.cert, tls.key)
    return context
