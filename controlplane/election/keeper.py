"""The lease of a candidacy, kept by a thread of its own.

A busy event loop must not lose the lease, and a dead loop must not keep the lease: the thread renews only while the
loop ticks, and revokes the lease when the loop was silent for too many of the thread's own ticks. Ticks are counted
instead of time, so that a stop of the whole process does not count as silence of the loop. The deadline counts from
the sending of the acknowledged renewal and is never later than etcd's own. The thread never holds up the end of the
process.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable

import structlog

from controlplane.aio.clock import Clock
from controlplane.election.election_settings import ElectionSettings
from controlplane.model import errors
from controlplane.store.channel import EtcdOptions
from controlplane.store.lease import BlockingLease

log = structlog.get_logger(__name__)

_RETRY_SECONDS = 0.1


class LeaseKeeper:
    """Made and read on the event loop. `lost` ends with the reason, once; the lease is not renewed afterwards."""

    def __init__(
        self,
        options: EtcdOptions,
        settings: ElectionSettings,
        clock: Clock,
        *,
        loop_ticks: Callable[[], int],
        on_silent_loop: Callable[[], object],
    ) -> None:
        self._options = options
        self._settings = settings
        self._clock = clock
        self._loop_ticks = loop_ticks
        self._on_silent_loop = on_silent_loop
        self._deadline = clock.monotonic()
        self._loop = asyncio.get_running_loop()
        self.granted: asyncio.Future[int] = self._loop.create_future()
        self.lost: asyncio.Future[str] = self._loop.create_future()
        self._ended = asyncio.Event()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._work, name="lease-keeper", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def deadline(self) -> float:
        """Monotonic time until which the lease certainly lives; in the past when the lease is lost."""
        return self._deadline

    def stop(self) -> None:
        """Stops the renewals. Revoking the lease is left to the caller."""
        self._stop.set()

    async def stopped(self, timeout: float) -> bool:
        """Whether the thread ended in time; a call to etcd that hangs in the thread is not interrupted."""
        try:
            async with asyncio.timeout(timeout):
                await self._ended.wait()
        except TimeoutError:
            return False
        return True

    def _work(self) -> None:
        calls = BlockingLease(self._options)
        reason = "broken"
        try:
            lease = self._grant(calls)
            if lease:
                self._tell(self.granted, lease)
                reason = self._keep(calls, lease)
        finally:
            self._deadline = min(self._deadline, self._clock.monotonic())
            self._tell(self.lost, reason)
            calls.close()
            self._call(self._ended.set)

    def _grant(self, calls: BlockingLease) -> int:
        while not self._stop.is_set():
            sent = self._clock.monotonic()
            try:
                lease = calls.grant(self._settings.ttl_seconds, self._settings.patience_seconds)
            except (errors.Unavailable, errors.OutcomeUnknown):
                self._stop.wait(_RETRY_SECONDS)
            else:
                self._deadline = sent + self._settings.ttl_seconds
                return lease
        return 0

    def _keep(self, calls: BlockingLease, lease: int) -> str:
        """Renews until the lease is lost or the keeper is stopped; returns the reason."""
        seen, silent = self._loop_ticks(), 0
        silence = self._settings.ticks(self._settings.loop_silence_seconds)
        following = self._deadline - self._settings.ttl_seconds + self._settings.renew_seconds
        while not self._stop.wait(self._settings.tick_seconds):
            ticks = self._loop_ticks()
            seen, silent = ticks, (silent + 1 if ticks == seen else 0)
            now = self._clock.monotonic()
            if silent >= silence:
                return self._give_up(calls, lease)
            if now >= self._deadline:
                return "deadline"
            if now >= following and silent == 0:
                alive = self._renew(calls, lease)
                if alive is False:
                    return "lease-gone"
                following = now + (self._settings.renew_seconds if alive else _RETRY_SECONDS)
        return "stopped"

    def _renew(self, calls: BlockingLease, lease: int) -> bool | None:
        """Whether the lease lives; None without an answer, when the caller tries again."""
        sent = self._clock.monotonic()
        try:
            alive = calls.renew(lease, min(self._settings.patience_seconds, max(self._deadline - sent, 0.01)))
        except (errors.Unavailable, errors.OutcomeUnknown):
            return None
        if alive and not self._stop.is_set():
            self._deadline = sent + self._settings.ttl_seconds
        return alive

    def _give_up(self, calls: BlockingLease, lease: int) -> str:
        log.warning("event loop is silent: revoking the own lease", lease=f"{lease:x}")
        until, self._deadline = self._deadline, self._clock.monotonic()
        self._on_silent_loop()
        while not self._stop.is_set() and self._clock.monotonic() < until:
            try:
                calls.revoke(lease, self._settings.patience_seconds)
                break
            except (errors.Unavailable, errors.OutcomeUnknown):
                self._stop.wait(_RETRY_SECONDS)
        return "loop-silent"

    def _tell(self, future: asyncio.Future[int] | asyncio.Future[str], fact: int | str) -> None:
        def settle() -> None:
            if not future.done():
                future.set_result(fact)  # type: ignore[arg-type]

        self._call(settle)

    def _call(self, callback: Callable[[], None]) -> None:
        try:
            self._loop.call_soon_threadsafe(callback)
        except RuntimeError:
            # The loop is closed: the process ends, and no waiter is left.
            self._stop.set()
