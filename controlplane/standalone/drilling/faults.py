"""Faults of a running `up`: a signal to the leader, and the wait for the next leader and the old replica.

A process is signalled only when `up.json` and its candidate key in etcd agree on its pid. A stopped process is always
continued, also when the drill fails.
"""

from __future__ import annotations

import asyncio
import os
import signal
from dataclasses import dataclass

from controlplane.aio.clock import Clock
from controlplane.client import Client
from controlplane.client.caller import CallTimeouts
from controlplane.model.errors import ControlPlaneError, Unavailable
from controlplane.standalone.drilling.commit_watch import CommitWatch
from controlplane.standalone.endpoints import EndpointSource

_NEXT_SECONDS = 60.0
_BACK_SECONDS = 60.0
_LOOK_SECONDS = 0.05
_PROBE = CallTimeouts(connect_seconds=2.0, attempt_seconds=5.0, total_seconds=0.0)


@dataclass(frozen=True, slots=True)
class Failover:
    replica: str
    epoch: int
    seconds: float


class Faults:
    def __init__(self, where: EndpointSource, commits: CommitWatch, clock: Clock, *, stop_seconds: float) -> None:
        self._where = where
        self._commits = commits
        self._clock = clock
        self._stop_seconds = stop_seconds

    async def strike(self, number: signal.Signals) -> Failover:
        """Signals the leader; returns when the next leader works and the old replica serves again."""
        epoch, name, pid = await self._leader()
        at = self._clock.monotonic()
        os.kill(pid, number)
        try:
            seconds = await self._next_cycle(epoch) - at
            if number == signal.SIGSTOP:
                await self._clock.sleep(max(0.0, at + self._stop_seconds - self._clock.monotonic()))
        finally:
            if number == signal.SIGSTOP:
                os.kill(pid, signal.SIGCONT)
        await self._back(name, None if number == signal.SIGSTOP else pid)
        return Failover(name, epoch, seconds)

    async def _leader(self) -> tuple[int, str, int]:
        """Epoch, name and pid of a working leader: a leader with a committed cycle."""
        give_up = self._clock.monotonic() + _NEXT_SECONDS
        while self._clock.monotonic() < give_up:
            leader = await self._commits.leader()
            if leader is not None:
                epoch, candidate = leader
                if self._commits.worked(epoch) and self._pid(candidate.id) == candidate.pid:
                    return epoch, candidate.id, candidate.pid
            await self._clock.sleep(_LOOK_SECONDS)
        raise Unavailable(f"no leader committed a cycle for {_NEXT_SECONDS:g} s")

    async def _next_cycle(self, epoch: int) -> float:
        try:
            async with asyncio.timeout(_NEXT_SECONDS):
                await self._commits.until(lambda: self._commits.next_cycle(epoch) is not None)
        except TimeoutError:
            raise Unavailable(f"no cycle was committed within {_NEXT_SECONDS:g} s after epoch {epoch}") from None
        arrived_at = self._commits.next_cycle(epoch)
        assert arrived_at is not None
        return arrived_at

    def _pid(self, name: str) -> int | None:
        replicas = {replica["id"]: replica["pid"] for replica in self._where.up()["replicas"]}
        return replicas.get(name)

    async def _back(self, name: str, old_pid: int | None) -> None:
        """Waits until the supervisor has restarted the replica and the replica answers."""
        give_up = self._clock.monotonic() + _BACK_SECONDS
        while self._pid(name) == old_pid or not await self._serves(name):
            if self._clock.monotonic() > give_up:
                raise Unavailable(f"{name} was not back after {_BACK_SECONDS:g} s")
            await self._clock.sleep(_LOOK_SECONDS)

    async def _serves(self, name: str) -> bool:
        endpoint = next(replica["grpc"] for replica in self._where.up()["replicas"] if replica["id"] == name)
        where = self._where
        async with Client([endpoint], token=where.token, ca_file=where.ca_file(), timeouts=_PROBE) as client:
            try:
                return bool((await client.cluster.status()).id == name)
            except ControlPlaneError:
                return False
