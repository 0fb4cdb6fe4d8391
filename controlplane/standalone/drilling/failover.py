"""The failover drill: load, then one fault after the other, then the wait for every order's end, then the account."""

from __future__ import annotations

import asyncio
import signal
from contextlib import suppress
from pathlib import Path
from typing import Any, Protocol

from controlplane.aio.clock import SystemClock
from controlplane.model.errors import ControlPlaneError, Unavailable
from controlplane.replica_settings import ReplicaSettings
from controlplane.standalone.drilling import account
from controlplane.standalone.drilling.commit_watch import CommitWatch
from controlplane.standalone.drilling.faults import Faults
from controlplane.standalone.drilling.offer import Offer
from controlplane.standalone.endpoints import EndpointSource
from controlplane.store.channel import EtcdOptions
from controlplane.store.kv import Store
from controlplane.verify.checks import Checks
from controlplane.verify.gathering import evidence, history_reader

_RAMP_SECONDS = 60.0
_STUCK_SECONDS = 60.0
_TTLS_STOPPED = 3


class DrillProgress(Protocol):
    """Shows a person how far the drill is: `at` moves a bar, `say` prints a line."""

    def at(self, done: int, total: int | None = None, title: str | None = None) -> None: ...

    def say(self, text: str) -> None: ...


class Drill:
    """A single drill on a running `up`."""

    def __init__(self, where: EndpointSource, rate: float, record: Path, bar: DrillProgress) -> None:
        etcd = tuple(where.up()["etcd"])
        stop_seconds = _TTLS_STOPPED * ReplicaSettings(etcd=etcd).ttl
        clock = SystemClock()
        self._where = where
        self._bar = bar
        self._store = Store(EtcdOptions(etcd, *where.etcd_files()), clock)
        self._commits = CommitWatch(self._store, clock)
        self._offer = Offer(where, rate, record, clock)
        self._faults = Faults(where, self._commits, clock, stop_seconds=stop_seconds)

    async def run(self, kills: int, number: signal.Signals) -> dict[str, Any]:
        """Ends when every acknowledged order is final, or no order ends any more."""
        try:
            await self._commits.begin()
            async with asyncio.TaskGroup() as background:
                watching = background.create_task(self._commits.run())
                offering = background.create_task(self._offer.run())
                await self._ramp_up()
                seconds = await self._strike(kills, number)
                self._offer.stop()
                await offering
                await self._all_final()
                watching.cancel()
            return await self._account(seconds)
        except* ControlPlaneError as failed:
            raise _first(failed) from None
        finally:
            await self._store.close()

    async def _ramp_up(self) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(_RAMP_SECONDS):
                await self._offer.reached.wait()
        if not self._offer.reached.is_set():
            rate = self._offer.reached_rate
            raise Unavailable(f"the offered rate was never reached, only {rate:.1f} orders/s: nothing was killed")

    async def _strike(self, kills: int, number: signal.Signals) -> list[float]:
        """Ends early when no new leader works in time: the missing kills then show in the result."""
        seconds: list[float] = []
        for count in range(1, kills + 1):
            try:
                last = await self._faults.strike(number)
            except Unavailable as error:
                self._bar.say(f"{count}/{kills} {number.name}: {error}")
                break
            seconds.append(last.seconds)
            self._bar.at(count)
            self._bar.say(f"{count}/{kills} {number.name} {last.replica}: next cycle after {last.seconds:.3f} s")
        return seconds

    async def _all_final(self) -> None:
        """Gives up when no order ended for a minute; the result then counts the missing orders."""
        wanted = set(self._offer.acknowledged)
        while left := len(wanted - self._commits.ends.keys()):
            self._bar.at(len(wanted) - left, len(wanted), "orders final")
            if not await self._commits.ended_more(_STUCK_SECONDS):
                self._bar.say(f"{left} orders are not final, and nothing ended for {_STUCK_SECONDS:g} s")
                return

    async def _account(self, seconds: list[float]) -> dict[str, Any]:
        _, checks = await history_reader.read(self._store, Checks)
        assert self._where.data_dir is not None
        for line in evidence.read_joblet_records(self._where.data_dir):
            checks.attempts.record(line)
        load = account.Load(self._offer.rate, self._offer.reached_rate, self._offer.acknowledged)
        return account.answer(seconds, load, self._commits.ends, checks)


def _first(failed: BaseExceptionGroup[ControlPlaneError]) -> ControlPlaneError:
    error: BaseException = failed
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    assert isinstance(error, ControlPlaneError)
    return error
