"""A listener or a value that raises concerns itself only: the others hear of every change."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

from controlplane.aio.clock import SystemClock
from controlplane.cache.ledgers import Ledgers, Touched
from controlplane.cache.observer import Observer
from controlplane.cache.reflector import Cache, Delta
from controlplane.model.event import Happening
from controlplane.quarantine import Quarantine
from controlplane.store import keys
from controlplane.store.kv import Store
from tests.builders import a_target, an_order
from tests.picture import History


class Stage:
    def __init__(self) -> None:
        self.quarantine = Quarantine(SystemClock())
        self.cache = Cache(cast(Store, None), SystemClock(), quarantine=self.quarantine)
        self.history = History()

    def write(self, contents: dict[str, Any]) -> None:
        self.cache._apply(self.history.write(contents), self.history.revision)


def test_a_listener_that_raises_keeps_no_other_from_hearing() -> None:
    stage, heard = Stage(), []

    def failing(_deltas: Sequence[Delta], _revision: int) -> None:
        raise RuntimeError("a bug")

    stage.cache.subscribe(failing)
    stage.cache.subscribe(lambda deltas, revision: heard.append((len(deltas), revision)))
    for _ in range(2):
        stage.write({keys.config("targets", "t1"): a_target("t1")})
    assert heard == [(1, 2), (1, 3)]
    assert stage.cache.revision == 3
    (isolated,) = stage.quarantine.isolated(10)
    assert (isolated.about.kind, isolated.error, isolated.count) == ("Listener", "RuntimeError: a bug", 2)


def test_a_listener_that_hears_again_is_isolated_no_more() -> None:
    stage, bugs = Stage(), [RuntimeError("a bug")]

    def sometimes_failing(_deltas: Sequence[Delta], _revision: int) -> None:
        if bugs:
            raise bugs.pop()

    stage.cache.subscribe(sometimes_failing)
    stage.write({keys.config("targets", "t1"): a_target("t1")})
    assert stage.quarantine.total == 1
    stage.write({keys.config("targets", "t1"): a_target("t1")})
    assert stage.quarantine.total == 0


def test_a_listener_of_the_ledgers_that_raises_keeps_no_other_from_hearing() -> None:
    stage, heard = Stage(), []
    ledgers = Ledgers(stage.cache)

    def failing(_touched: Touched) -> None:
        raise RuntimeError("a bug")

    ledgers.subscribe(failing)
    ledgers.subscribe(lambda touched: heard.append(set(touched.orders)))
    order = an_order().jobs(cpu=1).build()
    stage.write({keys.order(order.id): order})
    assert heard == [{order.id}]


class Unreadable(Ledgers):
    """Raises what nobody foresaw for the order that it is told to."""

    bad = ""

    def _take_order(self, identity: str, entry: Any) -> None:
        if identity == self.bad:
            raise OverflowError("what nobody foresaw")
        super()._take_order(identity, entry)


def test_a_value_that_a_ledger_cannot_take_is_set_aside_and_those_of_others_are_taken() -> None:
    stage = Stage()
    ledgers = Unreadable(stage.cache)
    orders = [an_order().jobs(cpu=1).build() for _ in range(3)]
    ledgers.bad = orders[1].id
    stage.write({keys.order(order.id): order for order in orders})
    assert set(ledgers.orders) == {orders[0].id, orders[2].id}
    assert ledgers.poisoned == {f"config/orders/{orders[1].id}"}
    ledgers.bad = ""
    stage.write({keys.order(orders[1].id): orders[1]})
    assert ledgers.poisoned == set()
    assert set(ledgers.orders) == {order.id for order in orders}


def test_a_change_that_cannot_be_told_keeps_no_other_from_being_told() -> None:
    stage, told = Stage(), list[Happening]()
    observer = Observer(Ledgers(stage.cache))
    observer.subscribe(told.append, 0)

    def failing(happening: Happening) -> None:
        if happening.about.name == "t1":
            raise RuntimeError("a bug")

    observer.subscribe(failing, 0)
    stage.write({keys.config("targets", "t0"): a_target("t0")})
    stage.write({keys.config("targets", name): a_target(name) for name in ("t1", "t2", "t3")})
    assert [happening.about.name for happening in told] == ["t1", "t2", "t3"]
