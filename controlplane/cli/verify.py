"""`cpctl verify`: are the promises kept? Judged from etcd's history, the joblets' records and the replicas' word."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

import typer

from controlplane.aio.clock import SystemClock, wall_milliseconds
from controlplane.cli import evidence
from controlplane.cli.output import Column, Format
from controlplane.cli.progress import Bar
from controlplane.cli.shell import NO, Shell, command
from controlplane.client import Client
from controlplane.model.errors import ControlPlaneError
from controlplane.store.channel import EtcdOptions
from controlplane.store.kv import Store
from controlplane.verify import p8_cache, p10_reasons, reading
from controlplane.verify.checks import Checks
from controlplane.verify.reading import Span
from controlplane.verify.verdict import Verdict, unknown

_LEADER_SECONDS = 5.0
_NO_RECORDS = "from history only, the joblets' records need --data-dir"

ETCD = Annotated[str, typer.Option("--etcd", metavar="URL", help="etcd itself; several separated by commas.")]
COLUMNS = (
    Column("PROMISE", lambda verdict: verdict.promise),
    Column("OK", lambda verdict: {True: "yes", False: "NO", None: "unknown"}[verdict.ok]),
    Column("CHECKED", lambda verdict: str(verdict.checked)),
    Column("FIRST VIOLATION", lambda verdict: _first(verdict)),
)


def register(app: typer.Typer) -> None:
    command(app, "verify")(verify)


async def verify(
    shell: Shell,
    etcd: ETCD = "",
    record: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Acknowledged orders, JSON lines with an id each.")
    ] = None,
) -> int | None:
    """Check the promises on a live etcd and its history; exit code 2 when one is broken."""
    place = locate(shell, etcd)
    acknowledged = evidence.identities(record) if record is not None else []
    store = Store(EtcdOptions(place.etcd), SystemClock())
    try:
        with Bar("history", 1) as bar:
            span, checks = await reading.read(store, Checks, lambda at, all_: bar.at(at - all_.first, _length(all_)))
        verdicts = await _judge(checks, store, place, span, acknowledged)
    finally:
        await store.close()
    _show(shell, span, verdicts)
    return NO if any(verdict.ok is False for verdict in verdicts) else None


@dataclass(frozen=True)
class Place:
    """Where to look. Without a folder there are no joblets' records; replicas are (name, address)."""

    etcd: tuple[str, ...]
    data_dir: Path | None = None
    replicas: tuple[tuple[str, str], ...] = field(default=())


def locate(shell: Shell, etcd: str) -> Place:
    """`--etcd` says what to read; else the folder of `up` does, Invalid when there is none."""
    if etcd:
        urls = tuple(url.strip() for url in etcd.split(",") if url.strip())
        return Place(urls, replicas=tuple((endpoint, endpoint) for endpoint in shell.where.endpoints))
    up = shell.where.up()
    replicas = tuple((replica["id"], replica["grpc"]) for replica in up["replicas"])
    return Place(tuple(up["etcd"]), shell.where.data_dir, replicas)


async def _judge(
    checks: Checks, store: Store, place: Place, span: Span, acknowledged: Sequence[str]
) -> list[Verdict]:  # fmt: skip
    leader = checks.leader
    await reading.follow(store, leader, span.last, lambda: leader.leads, _LEADER_SECONDS)
    checks.orders.acknowledged(acknowledged, now_milliseconds=wall_milliseconds())
    note = _NO_RECORDS if place.data_dir is None else ran(checks, place.data_dir)
    return [
        checks.fenced.verdict(),
        checks.orders.verdict(),
        checks.attempts.verdict(_NO_RECORDS if place.data_dir is None else ""),
        checks.exclusive.verdict(note),
        checks.capacity.verdict(),
        unknown("P6", "comes with the engine's replay"),
        checks.lifecycle.verdict(),
        p8_cache.judge(await evidence.hashes(store, place.replicas)) if place.replicas else _no_endpoints("P8"),
        leader.verdict(expected=bool(place.replicas)),
        await _reasons(place) if place.replicas else _no_endpoints("P10"),
        unknown("P11", "comes with divisible jobs"),
    ]


def ran(checks: Checks, data_dir: Path) -> str:
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


def _length(span: Span) -> int:
    return max(span.last - span.first, 1)


def _show(shell: Shell, span: Span, verdicts: Sequence[Verdict]) -> None:
    if shell.out.is_table:
        shell.out.rows(COLUMNS, verdicts)
        shell.say(f"revisions {span.first} to {span.last}")
    elif shell.out.form == Format.NAME:
        for verdict in verdicts:
            if verdict.ok is False:
                shell.out.text(verdict.promise)
    else:
        promises = [verdict.to_json() for verdict in verdicts]
        shell.out.value({"revision": span.last, "from_revision": span.first, "promises": promises})


def _first(verdict: Verdict) -> str:
    if not verdict.violations:
        return verdict.why or verdict.note or "-"
    first = verdict.violations[0]
    more = f" (and {len(verdict.violations) - 1} more)" if len(verdict.violations) > 1 else ""
    return f"{first.key}{f' at {first.revision}' if first.revision else ''}: {first.why}{more}"
