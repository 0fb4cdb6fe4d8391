"""Ledgers: what is derived change by change equals what is derived from a list, after any prefix of any history."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from controlplane.cache.ledger import OrderLedger
from controlplane.cache.ledgers import Ledgers
from controlplane.model.order import Counts, Order, OrderStatus
from controlplane.store import keys
from controlplane.store.watch import Change
from tests.builders import FulfilmentBuilder, a_fulfilment, an_order
from tests.picture import Content, History, Picture, Told

ENDS = {"Succeeded": "done", "Failed": "fail", "Cancelled": "cancel", "Lost": "retry"}


class Chronicle:
    """Writes a history that leaders, users and joblets could have written, led by numbers drawn by hypothesis."""

    def __init__(self, choose: Callable[[int], int]) -> None:
        self._choose = choose
        self.orders: dict[str, Order] = {}
        self.waiting: list[tuple[str, int, int]] = []
        self.placed: dict[str, tuple[FulfilmentBuilder, str, int]] = {}

    def write(self) -> dict[str, Content]:
        """The contents of one transaction."""
        acts = (
            self._submit,
            self._place,
            self._report,
            self._report,
            self._release,
            self._release,
            self._wish,
            self._fold,
        )
        return acts[self._choose(len(acts))]()

    def _pick(self, of: Iterator[Any]) -> Any:
        found = list(of)
        return found[self._choose(len(found))] if found else None

    def _submit(self) -> dict[str, Content]:
        order = an_order().of(1 + self._choose(3)).jobs(cpu=1).build()
        self.orders[order.id] = order
        self.waiting.extend((order.id, index, 1) for index in range(order.tasks_total))
        return {keys.order(order.id): order}

    def _place(self) -> dict[str, Content]:
        task = self._pick(iter(self.waiting))
        if task is None:
            return self._submit()
        self.waiting.remove(task)
        order, index, attempt = task
        builder = a_fulfilment(order).on(f"t{self._choose(2)}").task(index, attempt=attempt)
        builder = builder.holding(f"r-{index}") if self._choose(2) else builder
        self.placed[builder.identity] = (builder, "", 0)
        claims = {keys.claim(claim.resource): claim for claim in builder.claims()}
        return {keys.desired(builder.target, builder.identity): builder.build(), **claims}

    def _report(self) -> dict[str, Content]:
        found = self._pick(item for item in self.placed.values() if item[1] not in ENDS)
        if found is None:
            return self._place()
        builder, _, report = found
        phase = ("Starting", "Running", "Running", *ENDS)[self._choose(7)]
        self.placed[builder.identity] = (builder, phase, report + 1)
        seen = "Failed" if phase == "Lost" else phase
        observed = builder.observed(seen, report=report + 1, percent=self._choose(101))
        return {keys.observed(builder.target, builder.identity): observed}

    def _release(self) -> dict[str, Content]:
        found = self._pick(item for item in self.placed.values() if item[1] in ENDS)
        if found is None:
            return self._report()
        builder, phase, _ = found
        del self.placed[builder.identity]
        decision = "cancel" if self.orders[builder.order].cancel and phase != "Succeeded" else ENDS[phase]
        if decision == "retry":
            self.waiting.extend((builder.order, task.index, task.attempt + 1) for task in builder.tasks)
        return {
            keys.ended(builder.order, builder.identity): builder.ended(decision),
            keys.desired(builder.target, builder.identity): None,
            keys.observed(builder.target, builder.identity): None,
            **{keys.claim(name): None for name in builder.holds},
        }

    def _wish(self) -> dict[str, Content]:
        order = self._pick(order for order in self.orders.values() if not order.cancel)
        if order is None:
            return self._submit()
        changed = _changed(order, cancel=self._choose(3) == 0, paused=self._choose(2) == 0)
        self.orders[order.id] = changed
        if changed.cancel:
            self.waiting = [task for task in self.waiting if task[0] != order.id]
        return {keys.order(order.id): changed}

    def _fold(self) -> dict[str, Content]:
        order = self._pick(iter(self.orders))
        if order is None:
            return self._submit()
        busy = any(builder.order == order for builder, _, _ in self.placed.values())
        over = not busy and all(task[0] != order for task in self.waiting)
        if over:
            del self.orders[order]
        status = OrderStatus(order=order, epoch=1, phase="Succeeded" if over else "Running", counts=Counts())
        return {keys.order_status(order): status}


def _changed(order: Order, *, cancel: bool, paused: bool) -> Order:
    fields = {name: getattr(order, name) for name in order.__struct_fields__}
    return Order(**{**fields, "cancel": cancel, "paused": paused})


def shape(ledgers: Ledgers) -> dict[str, Any]:
    """All that ledgers say, as plain values that stay as they are."""
    return {
        "orders": {identity: _shape_of(ledger) for identity, ledger in ledgers.orders.items()},
        "targets": {
            name: (dict(ledger.used), set(ledger.fulfilments), dict(ledger.kinds), dict(ledger.failures))
            for name, ledger in ledgers.targets.items()
        },
        "owners": ledgers.owners.frozen(),
        "poisoned": set(ledgers.poisoned),
        "open_orders": dict(ledgers.open_orders),
        "waiting": _waiting(ledgers),
    }


def _waiting(ledgers: Ledgers) -> tuple[int, int]:
    """The running sums, which are those over all orders."""
    each = [0 if ledger.ending else ledger.pending() for ledger in ledgers.orders.values()]
    assert (ledgers.waiting_orders, ledgers.waiting_tasks) == (sum(map(bool, each)), sum(each))
    of_owners = Counter[str]()
    for ledger, waiting in zip(ledgers.orders.values(), each, strict=True):
        of_owners[ledger.order.owner] += waiting
    assert ledgers.waiting_tasks_of == +of_owners
    return ledgers.waiting_orders, ledgers.waiting_tasks


def _shape_of(ledger: OrderLedger) -> dict[str, Any]:
    return {
        "order": (ledger.order.cancel, ledger.order.paused, ledger.revision),
        "jobs": {
            name: (
                list(job.state),
                list(job.counts),
                [job.attempt(index) for index in range(job.count)],
                dict(job.not_before),
                list(job.moments or ()),
            )
            for name, job in ledger.jobs.items()
        },
        "live": {
            identity: (live.revision, live.observed, live.observed_revision, live.running, live.percent)
            for identity, live in ledger.live.items()
        },
        "totals": (ledger.phase, ledger.status_revision, ledger.ended_any, ledger.running, ledger.percents),
        "over": set(ledger.over),
        "stuck": set(ledger.stuck),
        "counts": ledger.counts(),
    }


def rebuilt(history: History) -> dict[str, Any]:
    picture = Picture()
    ledgers = Ledgers(picture)
    picture.tell(history.listing())
    return shape(ledgers)


@settings(max_examples=50, deadline=None)
@given(st.data())
def test_after_every_write_the_ledgers_equal_those_that_are_built_from_a_list(data: st.DataObject) -> None:
    chronicle = Chronicle(lambda most: data.draw(st.integers(0, most - 1)) if most else 0)
    history, picture = History(), Picture()
    ledgers = Ledgers(picture)
    for _ in range(data.draw(st.integers(1, 40))):
        picture.tell(history.write(chronicle.write()))
        assert shape(ledgers) == rebuilt(history)


@settings(max_examples=50, deadline=None)
@given(st.data())
def test_batches_of_several_revisions_lead_to_the_same_ledgers(data: st.DataObject) -> None:
    chronicle = Chronicle(lambda most: data.draw(st.integers(0, most - 1)) if most else 0)
    history, picture = History(), Picture()
    ledgers = Ledgers(picture)
    for _ in range(data.draw(st.integers(1, 8))):
        batch: list[Change] = []
        for _ in range(data.draw(st.integers(1, 12))):
            batch.extend(history.write(chronicle.write()))
        picture.tell(batch)
        assert shape(ledgers) == rebuilt(history)


@settings(max_examples=50, deadline=None)
@given(st.data())
def test_a_list_after_a_gap_leads_to_the_same_ledgers(data: st.DataObject) -> None:
    chronicle = Chronicle(lambda most: data.draw(st.integers(0, most - 1)) if most else 0)
    history, picture = History(), Picture()
    ledgers = Ledgers(picture)
    for _ in range(data.draw(st.integers(1, 15))):
        picture.tell(history.write(chronicle.write()))
    before = dict(history.values)
    for _ in range(data.draw(st.integers(1, 25))):
        history.write(chronicle.write())
    gone = [Change(key, history.revision, None) for key in before.keys() - history.values.keys()]
    changed = [change for change in history.listing() if before.get(change.key) != change.value]
    picture.tell(data.draw(st.permutations([*gone, *changed])))
    assert shape(ledgers) == rebuilt(history)


def test_open_orders_are_counted_by_owner_until_they_are_final_or_gone() -> None:
    told = Told()
    orders = [replace(an_order().build(), owner=owner) for owner in ("ada", "ada", "eve")]
    for order in orders:
        told.write({keys.order(order.id): order})
    assert told.ledgers.open_orders == {"ada": 2, "eve": 1}
    told.write({keys.order(orders[0].id): replace(orders[0], paused=True)})
    assert told.ledgers.open_orders == {"ada": 2, "eve": 1}
    failed = OrderStatus(order=orders[0].id, epoch=1, phase="Failed", counts=Counts())
    told.write({keys.order_status(orders[0].id): failed})
    told.write({keys.order(orders[2].id): None})
    assert told.ledgers.open_orders == {"ada": 1}
    assert told.rebuilt().open_orders == {"ada": 1}


def test_tasks_wait_until_they_are_placed_or_nobody_wants_them_any_more() -> None:
    told = Told()
    first, second = an_order().of(3).jobs(cpu=1).build(), an_order().of(2).jobs(cpu=1).build()
    told.write({keys.order(first.id): first})
    told.write({keys.order(second.id): replace(second, paused=True)})
    assert (told.ledgers.waiting_orders, told.ledgers.waiting_tasks) == (2, 5)
    placed = a_fulfilment(first.id).task(index=0).build()
    told.write({keys.desired(placed.target, placed.id): placed})
    assert (told.ledgers.waiting_orders, told.ledgers.waiting_tasks) == (2, 4)
    told.write({keys.order(second.id): replace(second, owner="eve", paused=True)})
    assert told.ledgers.waiting_tasks_of == {first.owner: 2, "eve": 2}
    told.write({keys.order(second.id): replace(second, cancel=True)})
    assert (told.ledgers.waiting_orders, told.ledgers.waiting_tasks) == (1, 2)
    told.write({keys.order(first.id): None})
    assert (told.ledgers.waiting_orders, told.ledgers.waiting_tasks) == (0, 0)


def test_fractions_that_came_and_went_leave_no_trace_in_what_an_owner_has() -> None:
    told = Told()
    order = an_order().of(3).jobs(cpu=1).build()
    told.write({keys.order(order.id): order})
    placed = [a_fulfilment(order.id).task(at).requesting(cpu=cpu) for at, cpu in enumerate((0.7, 0.1, 0.2))]
    for one in placed:
        told.write({keys.desired(one.target, one.identity): one.build()})
    for one in placed[:1]:
        told.write({keys.desired(one.target, one.identity): None})
    assert told.ledgers.owners.frozen() == told.rebuilt().owners.frozen() == {"": (2, {"cpu": 0.3})}
