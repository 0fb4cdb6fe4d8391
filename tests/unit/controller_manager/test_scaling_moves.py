"""Which placements that have not started go to a newcomer."""

from __future__ import annotations

from controlplane.controller_manager import scaling_moves as moves
from controlplane.controller_manager.scaling_moves import Unstarted, choose
from controlplane.engine.world import TargetRow, World
from controlplane.model.fulfilment import Fulfilment
from controlplane.model.quantity import Number
from controlplane.model.rule import Effect, Rule
from tests.builders import a_fulfilment, a_row, a_signature, a_world, an_identity


def a_line(count: int, target: str = "old", *, cpu: Number = 1, policy: str = "any") -> list[Unstarted]:
    def one(index: int) -> Fulfilment:
        return a_fulfilment(an_identity()).on(target).task(index).requesting(cpu=cpu).build()

    return [Unstarted(one(index), 1, a_signature(cpu=cpu, policy=policy)) for index in range(count)]


def used(row: TargetRow, cpu: Number) -> TargetRow:
    known = {name: getattr(row, name) for name in TargetRow.__dataclass_fields__}
    return TargetRow(**(known | {"free": {"cpu": row.capacity["cpu"] - cpu}}))


def worlds(old: Number, new: Number, *, capacity: Number = 8) -> World:
    return a_world(used(a_row("old", cpu=capacity), old), used(a_row("new", cpu=capacity), new))


def test_as_many_move_as_make_both_equally_full() -> None:
    assert len(choose(worlds(8, 0), "new", a_line(8))) == 4
    assert len(choose(worlds(8, 6), "new", a_line(8))) == 1
    assert choose(worlds(8, 7), "new", a_line(8)) == []
    assert choose(worlds(1, 0), "new", a_line(1)) == []


def test_nothing_moves_to_where_it_could_not_go() -> None:
    assert choose(worlds(8, 0), "new", a_line(4, policy="strict:old")) == []
    assert choose(worlds(8, 0), "new", a_line(4, cpu=9)) == []
    assert choose(worlds(8, 0), "nobody", a_line(4)) == []
    closed = a_world(used(a_row("old", cpu=8), 8), a_row("new", ready=False, cpu=8))
    assert choose(closed, "new", a_line(4)) == []
    rule = Rule(name="r", when="target.name == 'new'", then=Effect(forbid=True))
    forbidden = a_world(used(a_row("old", cpu=8), 8), a_row("new", cpu=8), rules=[rule])
    assert choose(forbidden, "new", a_line(4)) == []


def test_what_is_there_already_stays_and_no_more_than_so_many_move() -> None:
    assert choose(worlds(8, 0), "new", a_line(4, "new")) == []
    wide = worlds(1000, 0, capacity=1000)
    assert len(choose(wide, "new", a_line(400))) == moves.MOST
