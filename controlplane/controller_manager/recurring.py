"""Recurring orders: makes the run of each time that comes, once, whoever leads.

A run and the note in its template's status that its time is dealt with are one transaction, and a run's identity
follows from template and time: a leader that dies before it has made nothing, after it everything. What was cleaned up
is not made again, because its time is noted, and because nothing is made that is older than finished orders are kept.
A run for which there is no room, by its owner's quota or because too many runs of its template are open, waits: when
there is room, it is made or was missed, as the schedule says.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime, timedelta
from typing import NamedTuple

from msgspec.structs import replace

from controlplane.aio.clock import Clock
from controlplane.cache.ledger import OrderLedger
from controlplane.cache.ledgers import Ledgers, Touched
from controlplane.cache.settings import settings_of
from controlplane.controller_manager.runner import Again
from controlplane.model import schedule as schedules
from controlplane.model import times
from controlplane.model.errors import Conflict
from controlplane.model.lifecycle import FINAL_ORDER, OrderPhase
from controlplane.model.order import Counts, Order, OrderStatus
from controlplane.model.schedule import Schedule
from controlplane.store import codec, keys
from controlplane.store.fenced import FencedWriter
from controlplane.store.transaction import Item, absent, mod_is, put

# A run that is made later than this was missed. No change of leader takes so long.
LATE_SECONDS = 30.0
# Of the times that came while nobody could make runs, the last so many.
MOST_AT_ONCE = 100
# So many runs of one template may be open.
MOST_OPEN = 100
_ROOM_SECONDS = 10.0
_RUNS_AN_ITEM = 20
_BYTES_AN_ITEM = 500_000
_MOMENT = timedelta(milliseconds=1)
# Whatever the settings say, runs that are longer ago than this are not made up for.
_MOST_KEPT_SECONDS = 366 * 86400.0


class Step(NamedTuple):
    """What to do now: these runs, after which every time up to `through` is dealt with; then `following` comes."""

    phase: OrderPhase
    runs: tuple[datetime, ...] = ()
    through: datetime | None = None
    following: datetime | None = None


def plan(order: Order, before: OrderStatus | None, now: datetime, *, since: datetime, under_way: bool) -> Step:
    """`since`: where to begin, see `begin`. `under_way`: whether an earlier run is not over yet."""
    schedule = order.schedule
    assert schedule is not None
    if order.cancel:
        return Step(OrderPhase.CANCELLED)
    if order.paused:
        return Step(OrderPhase.PAUSED)
    made = before.runs if before is not None else 0
    left = MOST_AT_ONCE if schedule.limit is None else max(0, schedule.limit - made)
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
    """Those that are made, of all whose time has come: what is not on time was missed."""
    if schedule.missed == "all":
        return due
    good = [moment for moment in due if moment >= on_time]
    return due[-1:] if schedule.missed == "last" and not good else good


def _side_by_side(schedule: Schedule, runs: list[datetime], *, under_way: bool) -> list[datetime]:
    if schedule.overlap == "skip":
        return [] if under_way else runs[:1]
    return runs[-1:] if schedule.overlap == "replace" else runs


def begin(order: Order, before: OrderStatus | None, now: datetime, kept_seconds: float) -> datetime:
    """The moment up to which everything is dealt with: nothing is made that is older than finished orders are kept."""
    oldest = now - timedelta(seconds=min(max(kept_seconds, LATE_SECONDS), _MOST_KEPT_SECONDS))
    if before is not None and before.scheduled:
        return max(times.parse(before.scheduled, "scheduled"), oldest)
    first = times.parse(order.created, "created")
    if order.not_before:
        not_before = times.parse(order.not_before, "not_before")
        # A time at the beginning of the calendar has no moment before it, and has passed anyway.
        first = max(first, not_before - _MOMENT) if not_before > first else first
    return max(first, oldest)


def run_of(template: Order, scheduled: datetime, *, epoch: int, now: str) -> Order:
    """The template's run of that time, with what the template resolved to when it was submitted."""
    moment = times.show(scheduled)
    content = hashlib.blake2b(f"{template.id} {moment} {template.digest}".encode(), digest_size=16).hexdigest()
    return replace(
        template,
        id=schedules.run_identity(template.id, scheduled),
        created=now,
        not_before=None,
        paused=False,
        cancel_tasks=(),
        moves=(),
        releases=(),
        stopped=(),
        digest=content,
        schedule=None,
        template=template.id,
        scheduled=moment,
        epoch=epoch,
    )


def status_of(order: Order, before: OrderStatus | None, step: Step, *, epoch: int, now: str) -> OrderStatus | None:
    """The template's status after the step; None when what is stored says it already. It has no tasks to count."""
    noted = before.scheduled if before is not None else None
    following = times.show(step.following) if step.following is not None else None
    status = OrderStatus(
        order=order.id,
        epoch=before.epoch if before is not None else epoch,
        phase=step.phase,
        counts=Counts(),
        started=before.started if before is not None and before.started else now,
        finished=now if step.phase in FINAL_ORDER else None,
        scheduled=times.show(step.through) if step.through is not None else noted,
        runs=(before.runs if before is not None else 0) + len(step.runs),
        next=following,
    )
    return None if status == before else replace(status, epoch=epoch)


def giving_way(ledger: OrderLedger, before: OrderStatus | None, run: str, *, epoch: int) -> Item:
    """The run under way ends as if it were cancelled: the leader's own word, beside what its user wishes."""
    order = ledger.order
    known = before or OrderStatus(
        order=order.id, epoch=epoch, phase=OrderPhase.PENDING, counts=Counts(pending=order.tasks_total)
    )
    place = keys.order_status(order.id)
    status = replace(known, epoch=epoch, replaced_by=run)
    return Item(compares=(mod_is(place, ledger.status_revision),), then=(put(place, codec.encode(status)),))


def _first(step: Step, most: int) -> Step:
    """As much of the step as one transaction takes."""
    if len(step.runs) <= most:
        return step
    return step._replace(runs=step.runs[:most], through=step.runs[most - 1] if most else None)


def _at_once(order: Order) -> int:
    """How many runs fit into one transaction."""
    return max(1, min(_RUNS_AN_ITEM, _BYTES_AN_ITEM // (len(bytes(order.resolved)) + 1000)))


class Recurring:
    name = "recurring"

    def __init__(self, ledgers: Ledgers, writer: FencedWriter, clock: Clock) -> None:
        self._ledgers = ledgers
        self._writer = writer
        self._clock = clock
        # The runs that are not over, by template, and the template of each.
        self._runs: dict[str, set[str]] = {}
        self._template: dict[str, str] = {}

    def every_key(self) -> Iterable[str]:
        for ledger in self._ledgers.orders.values():
            self._note(ledger)
        return list(self._ledgers.templates)

    def concerned(self, touched: Touched) -> Iterable[str]:
        found = []
        for key in touched.orders:
            ledger = self._ledgers.orders.get(key)
            if ledger is not None:
                self._note(ledger)
            elif key in self._ledgers.templates:
                found.append(key)
            elif key in self._template:
                found.append(self._template[key])
        return found

    def _note(self, ledger: OrderLedger) -> None:
        template = ledger.order.template
        if template:
            self._template[ledger.order.id] = template
            self._runs.setdefault(template, set()).add(ledger.order.id)

    def _under_way(self, key: str) -> list[OrderLedger]:
        """The template's runs that are not over; forgets those that are."""
        known = self._runs.get(key, set())
        for run in [run for run in known if run not in self._ledgers.orders]:
            known.discard(run)
            self._template.pop(run, None)
        if not known:
            self._runs.pop(key, None)
        return [self._ledgers.orders[run] for run in sorted(known)]

    async def reconcile(self, key: str) -> Again | None:
        under_way = self._under_way(key)
        template = self._ledgers.templates.get(key)
        entry = self._ledgers.cache.snapshot.get("status/orders", key)
        before = entry.sound(OrderStatus) if entry is not None else None
        if template is None or (before is not None and before.phase in FINAL_ORDER):
            return None
        order, now = template.order, self._clock.wall()
        # Nobody knows what was made when the note of it cannot be read: begin anew.
        known = entry is None or before is not None
        # One that is cancelled or paused makes no runs, whatever its times are.
        runs = known and not order.cancel and not order.paused
        since = begin(order, before, now, self._kept_seconds()) if runs else now
        whole = plan(order, before, now, since=since, under_way=bool(under_way))
        if not known:
            whole = whole._replace(through=now)
        room = self._room(order, under_way)
        step = _first(whole, min(_at_once(order), room))
        status = status_of(order, before, step, epoch=self._writer.epoch, now=times.show(now))
        if status is not None:
            told = Item(
                compares=(
                    mod_is(keys.order(key), template.revision),
                    mod_is(keys.order_status(key), entry.revision if entry is not None else 0),
                ),
                then=(put(keys.order_status(key), codec.encode(status)),),
            )
            await self._write([told, *self._making(order, step, under_way)])
        if step.runs != whole.runs:
            return Again(after_seconds=_ROOM_SECONDS if room <= len(step.runs) else 0.0)
        return Again(after_seconds=(step.following - now + _MOMENT).total_seconds()) if step.following else None

    def _room(self, order: Order, under_way: Sequence[OrderLedger]) -> int:
        """How many runs may be made now: of this template, and by its owner's quota. One that gives way makes room."""
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
        return 0 if full else max(0, room + leaving)

    def _kept_seconds(self) -> float:
        return float(settings_of(self._ledgers.cache.snapshot).clean_up)

    def _making(self, order: Order, step: Step, under_way: Sequence[OrderLedger]) -> Iterator[Item]:
        """The step's runs, and what gives way to them. One that is there already is left as it is."""
        snapshot, epoch = self._ledgers.cache.snapshot, self._writer.epoch
        made = [run_of(order, moment, epoch=epoch, now=times.show(self._clock.wall())) for moment in step.runs]
        for run in made:
            key = keys.order(run.id)
            if snapshot.get("config/orders", run.id) is None:
                yield Item(compares=(absent(key),), then=(put(key, codec.encode(run)),))
        assert order.schedule is not None
        if made and order.schedule.overlap == "replace":
            for ledger in [ledger for ledger in under_way if not ledger.replaced_by][:_RUNS_AN_ITEM]:
                entry = snapshot.get("status/orders", ledger.order.id)
                before = entry.sound(OrderStatus) if entry is not None else None
                yield giving_way(ledger, before, made[-1].id, epoch=epoch)

    async def _write(self, items: Sequence[Item]) -> None:
        """All of them or none."""
        whole = Item(
            compares=tuple(compare for item in items for compare in item.compares),
            then=tuple(operation for item in items for operation in item.then),
        )
        outcome = await self._writer.write(whole)
        await self._ledgers.cache.reached(outcome.revision)
        if not outcome.succeeded:
            raise Conflict("the recurring order or one of its runs moved on meanwhile")
