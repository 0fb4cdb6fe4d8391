"""One verification: history through all checks, then what else bears witness, then a verdict for each promise."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from controlplane.aio.clock import SystemClock, wall_milliseconds
from controlplane.cli import evidence, replays
from controlplane.cli.whereabouts import Whereabouts
from controlplane.client import Client
from controlplane.model.errors import ControlPlaneError
from controlplane.store.channel import EtcdOptions
from controlplane.store.kv import Store
from controlplane.verify import p6_priority, p8_cache, p10_reasons, reading
from controlplane.verify.checks import Checks
from controlplane.verify.p9_dead import Unnoticed
from controlplane.verify.reading import Span
from controlplane.verify.verdict import Verdict, unknown

_LEADER_SECONDS = 5.0
_NO_RECORDS = "from history only, the joblets' records need --data-dir"


@dataclass(frozen=True)
class Place:
    """Where to look. Without a folder there are no joblets' records; replicas are (name, address)."""

    etcd: tuple[str, ...]
    data_dir: Path | None = None
    replicas: tuple[tuple[str, str], ...] = field(default=())


def locate(where: Whereabouts, etcd: str) -> Place:
    """`--etcd` says what to read; else the folder of `up` does, Invalid when there is none."""
    if etcd:
        urls = tuple(url.strip() for url in etcd.split(",") if url.strip())
        return Place(urls, replicas=tuple((endpoint, endpoint) for endpoint in where.endpoints))
    up = where.up()
    replicas = tuple((replica["id"], replica["grpc"]) for replica in up["replicas"])
    return Place(tuple(up["etcd"]), where.data_dir, replicas)


async def run(
    place: Place,
    acknowledged: Sequence[str],
    progress: Callable[[int, Span], None],
    listening: Callable[[float], None],
) -> tuple[Span, list[Verdict]]:
    store = Store(EtcdOptions(place.etcd), SystemClock())
    try:
        span, checks = await reading.read(store, Checks, progress)
        await _follow(checks, store, place, span)
        if place.data_dir is not None:
            checks.suspicions.ask(Unnoticed(evidence.joblet_records(place.data_dir), evidence.lives))
        await reading.settle(store, checks.suspicions, SystemClock(), listening)
        checks.tell_suspicions()
        return span, await _judge(checks, store, place, acknowledged)
    finally:
        await store.close()


async def _follow(checks: Checks, store: Store, place: Place, span: Span) -> None:
    """Whoever leads next gets a moment to say so."""
    leader = checks.leader
    if leader.stands or place.replicas:
        await reading.follow(store, leader, span.last, lambda: leader.leads, _LEADER_SECONDS)


async def _judge(checks: Checks, store: Store, place: Place, acknowledged: Sequence[str]) -> list[Verdict]:
    leader = checks.leader
    checks.orders.acknowledged(acknowledged, now_milliseconds=wall_milliseconds())
    note = _NO_RECORDS if place.data_dir is None else _ran(checks, place.data_dir)
    return [
        checks.fenced.verdict(),
        checks.orders.verdict(),
        checks.attempts.verdict(_NO_RECORDS if place.data_dir is None else ""),
        checks.exclusive.verdict(note),
        checks.capacity.verdict(),
        p6_priority.judge(*await replays.newest(store, SystemClock())),
        checks.lifecycle.verdict(),
        p8_cache.judge(await evidence.hashes(store, place.replicas)) if place.replicas else _no_endpoints("P8"),
        leader.verdict(expected=bool(place.replicas), ttl_seconds=await evidence.ttl_seconds(store, leader.leases)),
        await _reasons(place) if place.replicas else _no_endpoints("P10"),
        unknown("P11", "comes with divisible jobs"),
    ]


def _ran(checks: Checks, data_dir: Path) -> str:
    """Feeds what the joblets wrote down; returns what could not be judged."""
    for record in evidence.joblet_records(data_dir):
        checks.attempts.record(record)
        checks.exclusive.record(record)
    return checks.exclusive.records_end(evidence.lives, SystemClock().monotonic())


async def _reasons(place: Place) -> Verdict:
    async with Client([endpoint for _, endpoint in place.replicas]) as client:
        try:
            return p10_reasons.judge(await evidence.open_orders(client))
        except ControlPlaneError as error:
            return unknown("P10", str(error))


def _no_endpoints(promise: str) -> Verdict:
    return unknown(promise, "needs the replicas: --data-dir or --endpoints")
