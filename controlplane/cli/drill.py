"""`cpctl drill failover`: kills leaders of a running `up` under load, and says how long the next one took.

The drill counts only under the load it promised: kills begin when the offered rate was reached, and an answer below
it is no. Afterwards every acknowledged order is looked for in etcd, and every attempt in the joblets' records.
"""

from __future__ import annotations

import asyncio
import math
import signal
from collections.abc import Sequence
from contextlib import suppress
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from controlplane.aio.clock import SystemClock
from controlplane.cli import evidence, shell
from controlplane.cli.drilling.faults import Failover, Faults
from controlplane.cli.drilling.observer import Observer
from controlplane.cli.drilling.offer import ENOUGH, Offer
from controlplane.cli.output import Column
from controlplane.cli.progress import Bar
from controlplane.cli.shell import NO, Shell, command
from controlplane.model.errors import ControlPlaneError, Unavailable
from controlplane.settings import ReplicaSettings
from controlplane.store.channel import EtcdOptions
from controlplane.store.kv import Store
from controlplane.verify import reading
from controlplane.verify.checks import Checks

RECORD = "drill.jsonl"
_RAMP_SECONDS = 60.0
_STUCK_SECONDS = 60.0
_TTL_SECONDS = ReplicaSettings(etcd=("",)).ttl


def _part(name: str) -> Column:
    return Column(name.upper(), lambda item: _seconds(item["seconds"][name]))


def _count(name: str) -> Column:
    return Column(name.replace("_rate", "/s").upper(), lambda item: f"{item[name]:g}")


_COLUMNS = (
    _count("kills"),
    *(_part(name) for name in ("p50", "p99", "max")),
    *(_count(name) for name in ("offered_rate", "reached_rate", "submitted", "succeeded", "lost", "duplicated")),
)


class Signal(StrEnum):
    KILL = "KILL"
    TERM = "TERM"
    STOP = "STOP"


def register(app: typer.Typer) -> None:
    drills = shell.application("drill", "Break a running `up` on purpose, and see that nothing is lost.")
    command(drills, "failover")(failover)
    app.add_typer(drills)


async def failover(
    shell: Shell,
    kills: Annotated[int, typer.Option(min=1, metavar="N", help="How many leaders to kill.")] = 20,
    rate: Annotated[float, typer.Option(min=1, metavar="R", help="Orders a second to offer meanwhile.")] = 50,
    sign: Annotated[Signal, typer.Option("--signal", help="STOP is continued after 3 x TTL.")] = Signal.KILL,
    record: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Where acknowledged orders go [default: DIR/drill.jsonl].")
    ] = None,
) -> int | None:
    """Kill leaders under load; exit code 2 when something was lost, ran twice, failed, or the load was not reached."""
    up = shell.where.up()
    assert shell.where.data_dir is not None
    store = Store(EtcdOptions(tuple(up["etcd"])), SystemClock())
    observer = Observer(store, SystemClock())
    offer = Offer(shell.where.current, rate, record or shell.where.data_dir / RECORD, SystemClock())
    try:
        with Bar("failover", kills) as bar:
            suffered = await _Drill(shell, observer, offer, bar).run(kills, signal.Signals[f"SIG{sign.value}"])
            answer = await _account(store, shell.where.data_dir, offer, observer, suffered)
    except* ControlPlaneError as failed:
        raise _first(failed) from None
    finally:
        await store.close()
    _show(shell, answer)
    return None if _is_good(answer, kills) else NO


class _Drill:
    def __init__(self, shell: Shell, observer: Observer, offer: Offer, bar: Bar) -> None:
        self._observer = observer
        self._offer = offer
        self._bar = bar
        self._faults = Faults(shell.where, observer, SystemClock(), stop_seconds=3 * _TTL_SECONDS)

    async def run(self, kills: int, number: signal.Signals) -> list[Failover]:
        """All of it under load; ends when every acknowledged order is final, or nothing moves any more."""
        suffered: list[Failover] = []
        async with asyncio.TaskGroup() as background:
            watching = background.create_task(self._observer.run())
            offering = background.create_task(self._offer.run())
            await self._ramp_up()
            await self._strike(kills, number, suffered)
            self._offer.stop()
            await offering
            await self._all_final()
            watching.cancel()
        return suffered

    async def _strike(self, kills: int, number: signal.Signals, suffered: list[Failover]) -> None:
        """Ends early when the system does not come back: that is an answer, not an accident."""
        for count in range(1, kills + 1):
            try:
                last = await self._faults.strike(number)
            except Unavailable as error:
                self._bar.say(f"{count}/{kills} {number.name}: {error}")
                return
            suffered.append(last)
            self._bar.at(count)
            self._bar.say(f"{count}/{kills} {number.name} {last.replica}: next cycle after {last.seconds:.3f} s")

    async def _ramp_up(self) -> None:
        with suppress(TimeoutError):
            await asyncio.wait_for(self._offer.reached.wait(), _RAMP_SECONDS)
        if not self._offer.reached.is_set():
            rate = self._offer.reached_rate
            raise Unavailable(f"the offered rate was never reached, only {rate:.1f} orders/s: nothing was killed")

    async def _all_final(self) -> None:
        """Gives up when nothing ended for a while; the answer says then what is missing."""
        wanted = set(self._offer.acknowledged)
        while left := len(wanted - self._observer.ends.keys()):
            self._bar.at(len(wanted) - left, len(wanted), "orders final")
            if not await self._observer.ended_more(_STUCK_SECONDS):
                self._bar.say(f"{left} orders are not final, and nothing ended for {_STUCK_SECONDS:g} s")
                return


async def _account(
    store: Store, data_dir: Path, offer: Offer, observer: Observer, suffered: Sequence[Failover]
) -> dict[str, Any]:
    """What became of all that was acknowledged, by etcd's history and the joblets' records."""
    _, checks = await reading.read(store, Checks)
    for line in evidence.joblet_records(data_dir):
        checks.attempts.record(line)
    ours = set(offer.acknowledged)
    times = [failover.seconds for failover in suffered]
    return {
        "kills": len(suffered),
        "seconds": {"p50": _rank(times, 0.5), "p99": _rank(times, 0.99), "max": _rank(times, 1.0)},
        "offered_rate": offer.rate,
        "reached_rate": round(offer.reached_rate, 2),
        "submitted": len(ours),
        "succeeded": sum(observer.ends.get(name) == "Succeeded" for name in ours),
        "lost": checks.orders.missing(ours),
        "duplicated": len({attempt for attempt in checks.attempts.duplicates if attempt[0] in ours}),
    }


def _is_good(answer: dict[str, Any], kills: int) -> bool:
    whole = answer["lost"] == answer["duplicated"] == 0 and answer["succeeded"] == answer["submitted"]
    return bool(whole and answer["kills"] == kills and answer["reached_rate"] >= ENOUGH * answer["offered_rate"])


def _rank(values: Sequence[float], part: float) -> float | None:
    """The smallest value that this part of all values does not exceed."""
    if not values:
        return None
    return round(sorted(values)[max(0, math.ceil(part * len(values)) - 1)], 4)


def _first(failed: BaseExceptionGroup[ControlPlaneError]) -> ControlPlaneError:
    error: BaseException = failed
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    assert isinstance(error, ControlPlaneError)
    return error


def _seconds(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}"


def _show(shell: Shell, answer: dict[str, Any]) -> None:
    if shell.out.is_table:
        shell.out.rows(_COLUMNS, [answer])
    else:
        shell.out.value(answer)
