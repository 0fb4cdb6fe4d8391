"""A verification: all of history through all checks, then the other evidence, then a verdict for each promise."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from controlplane.aio.clock import SystemClock, wall_milliseconds
from controlplane.client import Client
from controlplane.model.errors import ControlPlaneError
from controlplane.store.channel import EtcdOptions
from controlplane.store.kv import Store
from controlplane.verify import p6_priority, p8_cache, p10_reasons
from controlplane.verify.checks import Checks
from controlplane.verify.gathering import evidence, history_reader, replayed_cycles
from controlplane.verify.gathering.history_reader import Span
from controlplane.verify.p9_dead import UnnoticedDeaths
from controlplane.verify.promise_verdicts import PromiseVerdict, unknown

_LEADER_SECONDS = 5.0
_NO_RECORDS = "from history only, the joblets' records need --data-dir"


@dataclass(frozen=True)
class EvidenceSources:
    """Without `data_dir` no joblet's records are read; `replicas` are (name, address).

    `ca_file` is for replicas, `etcd_files` (CA, certificate, key) for etcd; empty without TLS.
    """

    etcd: tuple[str, ...]
    data_dir: Path | None = None
    replicas: tuple[tuple[str, str], ...] = field(default=())
    token: str = ""
    ca_file: str = ""
    etcd_files: tuple[str, str, str] = ("", "", "")


async def run(
    sources: EvidenceSources,
    acknowledged: Sequence[str],
    progress: Callable[[int, Span], None],
    listening: Callable[[float], None],
) -> tuple[Span, list[PromiseVerdict]]:
    store = Store(EtcdOptions(sources.etcd, *sources.etcd_files), SystemClock())
    try:
        span, checks = await history_reader.read(store, Checks, progress)
        await _follow(checks, store, sources, span)
        if sources.data_dir is not None:
            checks.suspicions.ask(UnnoticedDeaths(evidence.read_joblet_records(sources.data_dir), evidence.lives))
        await history_reader.settle(store, checks.suspicions, SystemClock(), listening)
        checks.report_suspicions()
        return span, await _judge(checks, store, sources, acknowledged)
    finally:
        await store.close()


async def _follow(checks: Checks, store: Store, sources: EvidenceSources, span: Span) -> None:
    """Gives the next leader a moment to put its term on record."""
    leader = checks.leader
    if leader.stands or sources.replicas:
        await history_reader.follow(store, leader, span.last, lambda: leader.leads, _LEADER_SECONDS)


async def _judge(
    checks: Checks, store: Store, sources: EvidenceSources, acknowledged: Sequence[str]
) -> list[PromiseVerdict]:
    leader = checks.leader
    checks.orders.acknowledged(acknowledged, now_milliseconds=wall_milliseconds())
    note = _NO_RECORDS if sources.data_dir is None else _feed_records(checks, sources.data_dir)
    return [
        checks.fenced.verdict(),
        checks.orders.verdict(),
        checks.attempts.verdict(_NO_RECORDS if sources.data_dir is None else ""),
        checks.exclusive.verdict(note),
        checks.capacity.verdict(),
        p6_priority.judge(*await replayed_cycles.newest_cycles(store, SystemClock())),
        checks.lifecycle.verdict(),
        p8_cache.judge(await evidence.hashes(store, sources.replicas, sources.token, sources.ca_file))
        if sources.replicas
        else _no_endpoints("P8"),
        leader.verdict(expected=bool(sources.replicas), ttl_seconds=await evidence.ttl_seconds(store, leader.leases)),
        await _reasons(sources) if sources.replicas else _no_endpoints("P10"),
        unknown("P11", "comes with divisible jobs"),
    ]


def _feed_records(checks: Checks, data_dir: Path) -> str:
    """Feeds the joblets' records to the checks; returns a note about the records that could not be judged."""
    for record in evidence.read_joblet_records(data_dir):
        checks.attempts.record(record)
        checks.exclusive.record(record)
    return checks.exclusive.records_end(evidence.lives, SystemClock().monotonic())


async def _reasons(sources: EvidenceSources) -> PromiseVerdict:
    endpoints = [endpoint for _, endpoint in sources.replicas]
    async with Client(endpoints, token=sources.token, ca_file=sources.ca_file) as client:
        try:
            return p10_reasons.judge(await evidence.open_orders(client))
        except ControlPlaneError as error:
            return unknown("P10", str(error))


def _no_endpoints(promise: str) -> PromiseVerdict:
    return unknown(promise, "needs the replicas: --data-dir or --endpoints")
