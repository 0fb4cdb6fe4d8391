"""Recurring orders: makes the run of each scheduled time, once, whoever leads.

A run, and the note in the template's status that its time is dealt with, are a single transaction, and a run's identity
follows from template and time: a leader that dies has made the run and the note, or neither. A cleaned-up run is not
made again, because its time is noted, and because no run is made that is older than finished orders are kept. A run
without room, by the owner's quota or because too many runs of the template are open, waits: once there is room, the run
is made or was missed, as the schedule says.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from msgspec.structs import fields, replace

from controlplane.aio.clock import Clock
from controlplane.cache.effective_settings import settings_of
from controlplane.cache.ledger import OrderLedger
from controlplane.cache.ledgers import Ledgers, Touched
from controlplane.controller_manager.controller_writer import ControllerWriter
from controlplane.controller_manager.runner import Again
from controlplane.model import schedule as schedules
from controlplane.model import times
from controlplane.model.lifecycle import FINAL_ORDER, ORDER, OrderPhase, follow
from controlplane.model.order import WISHES, Counts, Order, OrderStatus
from controlplane.model.schedule import Schedule
from controlplane.store import codec, keys
from controlplane.store.transaction import Item, absent, mod_is, put

# A later run was missed. No change of leader takes so long.
LATE_SECONDS = 30.0
# The number of missed times that are looked at, the last ones.
MOST_AT_ONCE = 100
# The most open runs of a template.
MOST_OPEN = 100
_ROOM_SECONDS = 10.0
_RUNS_AN_ITEM = 20
_BYTES_AN_ITEM = 500_000
_MOMENT = timedelta(milliseconds=1)
# Whatever the settings say, older runs are not made up for.
_MOST_KEPT_SECONDS = 366 * 86400.0


_NO_WISHES: Mapping[str, Any] = {field.name: field.default for field in fields(Order) if field.name in WISHES}


class Step(NamedTuple):
    """The runs to make now, after which every time up to `through` is dealt with; then `following` comes."""

    phase: OrderPhase
    runs: tuple[datetime, ...] = ()
    through: datetime | None = None
    following: datetime | None = None


def plan(order: Order, before: OrderStatus | None, now: datetime, *, since: datetime, under_way: bool) -> Step:
    """`since`: where to begin, see `begin`. `under_way`: whether an earlier run is still open."""
    schedule = order.schedule
    assert schedule is not None
    if order.cancel:
        return Step(OrderPhase.CANCELLED)
    if order.paused:
        return Step(OrderPhase.PAUSED)
    runs_made = before.runs if before is not None else 0
    left = MOST_AT_ONCE if schedule.limit is None else max(0, schedule.limit - runs_made)
    due = schedules.latest(schedule, since, now, MOST_AT_ONCE) if left else []
    resumed = before is not None and before.phase == OrderPhase.PAUSED
    on_time = now - timedelta(seconds=0 if resumed else LATE_SECONDS)
    runs = _side_by_side(schedule, _caught_up(schedule, due, on_time), under_way=under_way)[:left]
    more = schedule.limit is None or left > len(runs)
    following = schedules.next_after(schedule, max(since, now)) if more else None
    over = following is None and not runs and not under_way
    phase = OrderPhase.SUCCEEDED if over else OrderPhase.RUNNING
    return Step(phase, tuple(runs), due[-1] if due else None, following)


def _caught_up(schedule: Schedule, due: list[datetime], on_time: datetime) -> list[datetime]:
    """The due times for which runs are made; late times were missed."""
    if schedule.missed == "all":
        return due
    good = [moment for moment in due if moment >= on_time]
    return due[-1:] if schedule.missed == "last" and not good else good


def _side_by_side(schedule: Schedule, runs: list[datetime], *, under_way: bool) -> list[datetime]:
    if schedule.overlap == "skip":
        return [] if under_way else runs[:1]
    return runs[-1:] if schedule.overlap == "replace" else runs


def begin(order: Order, before: OrderStatus | None, now: datetime, kept_seconds: float) -> datetime:
    """The moment up to which all times are dealt with: no run is older than finished orders are kept."""
    oldest = now - timedelta(seconds=min(max(kept_seconds, LATE_SECONDS), _MOST_KEPT_SECONDS))
    if before is not None and before.scheduled:
        return max(times.parse(before.scheduled, "scheduled"), oldest)
    first = times.parse(order.created, "created")
    if order.not_before:
        not_before = times.parse(order.not_before, "not_before")
        # The beginning of the calendar has no moment before, and has passed anyway.
        first = max(first, not_before - _MOMENT) if not_before > first else first
    return max(first, oldest)


def run_of(template: Order, scheduled: datetime, *, epoch: int, now: str) -> Order:
    """The template's run of this time, with the packet as resolved when the template was submitted, without wishes."""
    moment = times.show(scheduled)
    content = hashlib.blake2b(f"{template.id} {moment} {template.digest}".encode(), digest_size=16).hexdigest()
    return replace(
        template,
        id=schedules.run_identity(template.id, scheduled),
        created=now,
        not_before=None,
        **_NO_WISHES,
        digest=content,
        schedule=None,
        changed_by="",
        template=template.id,
        scheduled=moment,
        epoch=epoch,
    )


def status_of(order: Order, before: OrderStatus | None, step: Step, *, epoch: int, now: str) -> OrderStatus | None:
    """The template's status after the step; None when the stored status says the same. Templates have no tasks."""
    noted = before.scheduled if before is not None else None
    following = times.show(step.following) if step.following is not None else None
    status = OrderStatus(
        order=order.id,
        epoch=before.epoch if before is not None else epoch,
        phase=follow(ORDER, before.phase if before is not None else OrderPhase.PENDING, step.phase),
        counts=Counts(),
        started=before.started if before is not None and before.started else now,
        finished=now if step.phase in FINAL_ORDER else None,
        scheduled=times.show(step.through) if step.through is not None else noted,
        runs=(before.runs if before is not None else 0) + len(step.runs),
        next=following,
    )
    return None if status == before else replace(status, epoch=epoch)


def giving_way(ledger: OrderLedger, before: OrderStatus | None, run: str, *, epoch: int) -> Item:
    """The open run ends as if cancelled: the leader writes its own word beside the wishes of the user."""
    order = ledger.order
    current = before or OrderStatus(
        order=order.id, epoch=epoch, phase=OrderPhase.PENDING, counts=Counts(pending=order.tasks_total)
    )
    place = keys.order_status(order.id)
    status = replace(current, epoch=epoch, replaced_by=run)
    return Item(compares=(mod_is(place, ledger.status_revision),), then=(put(place, codec.encode(status)),))


def _first(step: Step, most: int) -> Step:
    """As much of the step as fits into a transaction."""
    if len(step.runs) <= most:
        return step
    return step._replace(runs=step.runs[:most], through=step.runs[most - 1] if most else None)


def _at_once(order: Order) -> int:
    """The number of runs that fit into a transaction."""
    return max(1, min(_RUNS_AN_ITEM, _BYTES_AN_ITEM // (len(bytes(order.resolved)) + 1000)))


class Recurring:
    name = "recurring"
    kind = "Order"

    def __init__(self, ledgers: Ledgers, writer: ControllerWriter, clock: Clock) -> None:
        self._ledgers = ledgers
        self._writer = writer
        self._clock = clock
        # The open runs by template, and the template of each run.
        self._runs: dict[str, set[str]] = {}
        self._template: dict[str, str] = {}

    def every_key(self) -> Iterable[str]:
        for ledger in self._ledgers.orders.values():
            self._note(ledger)
        return list(self._ledgers.templates)

    def keys_affected_by(self, touched: Touched) -> Iterable[str]:
        affected = []
        for key in touched.orders:
            ledger = self._ledgers.orders.get(key)
            if ledger is not None:
                self._note(ledger)
            elif key in self._ledgers.templates:
                affected.append(key)
            elif key in self._template:
                affected.append(self._template[key])
        return affected

    def _note(self, ledger: OrderLedger) -> None:
        template = ledger.order.template
        if template:
            self._template[ledger.order.id] = template
            self._runs.setdefault(template, set()).add(ledger.order.id)

    def _under_way(self, key: str) -> list[OrderLedger]:
        """The template's open runs; forgets runs that are over."""
        runs = self._runs.get(key, set())
        for run in [run for run in runs if run not in self._ledgers.orders]:
            runs.discard(run)
            self._template.pop(run, None)
        if not runs:
            self._runs.pop(key, None)
        return [self._ledgers.orders[run] for run in sorted(runs)]

    async def reconcile(self, key: str) -> Again | None:
        under_way = self._under_way(key)
        template = self._ledgers.templates.get(key)
        entry = self._ledgers.cache.snapshot.get(keys.ORDER_STATUS, key)
        before = entry.readable() if entry is not None else None
        if template is None or (before is not None and before.phase in FINAL_ORDER):
            return None
        order, now = template.order, self._clock.wall()
        # With an unreadable note the runs made so far are unknown: begin anew.
        is_readable = entry is None or before is not None
        # A cancelled or paused order makes no runs, whatever its times are.
        runs = is_readable and not order.cancel and not order.paused
        since = begin(order, before, now, self._kept_seconds()) if runs else now
        whole = plan(order, before, now, since=since, under_way=bool(under_way))
        if not is_readable:
            whole = whole._replace(through=now)
        room = self._room(order, under_way)
        step = _first(whole, min(_at_once(order), room))
        status = status_of(order, before, step, epoch=self._writer.epoch, now=times.show(now))
        if status is not None:
            noting = Item(
                compares=(
                    mod_is(keys.order(key), template.revision),
                    mod_is(keys.order_status(key), entry.revision if entry is not None else 0),
                ),
                then=(put(keys.order_status(key), codec.encode(status)),),
            )
            await self._writer.write_together([noting, *self._making(order, step, under_way)])
        if step.runs != whole.runs:
            return Again(after_seconds=_ROOM_SECONDS if room <= len(step.runs) else 0.0)
        return Again(after_seconds=(step.following - now + _MOMENT).total_seconds()) if step.following else None

    def _room(self, order: Order, under_way: Sequence[OrderLedger]) -> int:
        """The number of runs that may be made now, by template and owner's quota. A replaced run makes room."""
        assert order.schedule is not None
        leaving = len(under_way) if order.schedule.overlap == "replace" else 0
        room = MOST_OPEN - len(under_way)
        settings = settings_of(self._ledgers.cache.snapshot)
        quota = settings.quota_of(order.owner)
        if quota is not None and quota.orders is not None:
            room = min(room, quota.orders - self._ledgers.open_orders[order.owner])
        ledgers = self._ledgers
        full = (
            ledgers.waiting_orders >= settings.max_waiting_orders or ledgers.waiting_tasks >= settings.max_waiting_tasks
        )
        if quota is not None and quota.waiting_tasks is not None and order.tasks_total:
            tasks = quota.waiting_tasks - ledgers.waiting_tasks_of[order.owner]
            room = min(room, tasks // order.tasks_total)
        return 0 if full else max(0, room + leaving)

    def _kept_seconds(self) -> float:
        return float(settings_of(self._ledgers.cache.snapshot).clean_up)

    def _making(self, order: Order, step: Step, under_way: Sequence[OrderLedger]) -> Iterator[Item]:
        """The step's runs, and the open runs that they replace. A run that exists already is left as it is."""
        snapshot, epoch = self._ledgers.cache.snapshot, self._writer.epoch
        runs = [run_of(order, moment, epoch=epoch, now=times.show(self._clock.wall())) for moment in step.runs]
        for run in runs:
            key = keys.order(run.id)
            if not snapshot.has(keys.ORDERS, run.id):
                yield Item(compares=(absent(key),), then=(put(key, codec.encode(run)),))
        assert order.schedule is not None
        if runs and order.schedule.overlap == "replace":
            for ledger in [ledger for ledger in under_way if not ledger.replaced_by][:_RUNS_AN_ITEM]:
                before = snapshot.order_status(ledger.order.id)
                yield giving_way(ledger, before, runs[-1].id, epoch=epoch)
