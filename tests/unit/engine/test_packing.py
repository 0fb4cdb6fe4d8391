"""Tasks that share fulfilments: how many go where, and what of a target's slots they take."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controlplane.engine.decide import decide
from controlplane.engine.decision import Decision
from controlplane.engine.room import Room
from controlplane.engine.signature import Signature
from controlplane.engine.world import TargetRow
from controlplane.model import packing
from controlplane.model.settings import Settings
from controlplane.survey.explaining import verdicts_of
from tests.builders import a_row, a_signature, a_world
from tests.waiting import Waiting, queues

NO_RESERVATIONS = Settings(reservations=0)


def packed(pack: int, order: str = "o", *, cpu: float = 1) -> Signature:
    return a_signature(more={"pack": pack, "packed": f"{order}/job"}, cpu=cpu)


def decided(*rows: TargetRow, pack: int, count: int) -> Decision:
    waiting = Waiting(50, "o", "job", count, packed(pack))
    return decide(a_world(*rows, settings=NO_RESERVATIONS), queues([waiting]))


def placed(decision: Decision) -> dict[str, int]:
    found: Counter[str] = Counter()
    for placement in decision.placements:
        found[placement.target] += placement.count
    return found


def test_a_slot_takes_as_many_tasks_as_share_a_fulfilment() -> None:
    decision = decided(a_row("t", slots=2, cpu=100), pack=5, count=12)
    assert placed(decision) == {"t": 10}
    assert decision.refused == {"TargetFull": 2}


def test_room_goes_before_slots() -> None:
    assert placed(decided(a_row("t", slots=2, cpu=7), pack=5, count=12)) == {"t": 7}


def test_whole_fulfilments_are_laid_on_targets_not_single_tasks() -> None:
    rows = [a_row(f"t{at}", cpu=100) for at in range(4)]
    assert sorted(placed(decided(*rows, pack=5, count=10)).values()) == [5, 5]
    assert sorted(placed(decided(*rows, pack=1, count=10)).values()) == [2, 2, 3, 3]


def test_tasks_that_keep_away_from_each_other_share_nothing() -> None:
    signature = a_signature(more={"pack": 5, "packed": "o/job", "spread": "o"}, cpu=1)
    world = a_world(a_row("a", cpu=9), a_row("b", cpu=9), settings=NO_RESERVATIONS)
    assert placed(decide(world, queues([Waiting(50, "o", "job", 5, signature)]))) == {"a": 1, "b": 1}


def test_what_waits_is_told_what_is_missing_for_one_task() -> None:
    room = Room(a_world(a_row("full", slots=0, cpu=9), a_row("small", cpu=0.5)))
    full, small = verdicts_of(room, packed(5))
    assert (full.filter, small.filter) == ("TargetFull", "InsufficientCapacity")
    assert small.missing == {"cpu": 0.5}


def test_a_job_without_an_image_does_not_go_to_a_cluster() -> None:
    room = Room(a_world(a_row("c", driver="kubernetes", cpu=9), a_row("p", cpu=9)))
    cluster, process = verdicts_of(room, a_signature(more={"imageless": True}, cpu=1))
    assert (cluster.fits, cluster.filter, process.fits) == (False, "DriverUnsupported", True)
    assert cluster.sentence == "c is run by kubernetes, which runs images, and the job names none"
    assert [one.fits for one in verdicts_of(room, a_signature(cpu=1))] == [True, True]
    elsewhere = verdicts_of(room, a_signature(drivers=("process",), more={"imageless": True}, cpu=1))[0]
    assert elsewhere.sentence == "c is run by kubernetes, the job supports process"


ROWS = st.lists(st.tuples(st.none() | st.integers(0, 3), st.integers(0, 12)), min_size=1, max_size=4)
GROUPS = st.lists(st.tuples(st.integers(1, 6), st.integers(1, 20), st.integers(1, 3), st.integers(1, 3)), max_size=4)


@given(ROWS, GROUPS)
def test_no_target_gets_more_than_its_room_and_slots_and_none_stays_idle(
    rows: list[tuple[int | None, int]], groups: list[tuple[int, int, int, int]]
) -> None:
    targets = [a_row(f"t{at}", slots=slots, cpu=cpu) for at, (slots, cpu) in enumerate(rows)]
    waiting = [
        Waiting(priority, f"o{at}", "job", count, packed(pack, f"o{at}", cpu=cpu))
        for at, (pack, count, cpu, priority) in enumerate(groups)
    ]
    decision = decide(a_world(*targets, settings=NO_RESERVATIONS), queues(waiting))
    free, slots = {row.name: float(row.free["cpu"]) for row in targets}, {row.name: row.slots for row in targets}
    got: Counter[str] = Counter()
    for one in decision.placements:
        got[one.order] += one.count
        free[one.target] -= one.count * dict(one.signature.requests)["cpu"]
        left = slots[one.target]
        slots[one.target] = None if left is None else left - len(list(packing.sizes(one.count, one.signature.pack)))
    assert all(amount >= 0 for amount in free.values())
    assert all(left is None or left >= 0 for left in slots.values())
    for group in waiting:
        need = dict(group.signature.requests)["cpu"]
        fits = [row.name for row in targets if free[row.name] >= need and slots[row.name] != 0]
        assert got[group.order] == group.count or (got[group.order] < group.count and not fits)


@pytest.mark.parametrize(("count", "pack", "sizes"), [(0, 3, []), (1, 3, [1]), (7, 3, [3, 3, 1]), (3, 1, [1, 1, 1])])
def test_so_many_tasks_make_so_many_fulfilments(count: int, pack: int, sizes: list[int]) -> None:
    assert list(packing.sizes(count, pack)) == sizes


def test_requests_add_up_without_the_errors_of_floats() -> None:
    assert packing.together((("cpu", 0.1), ("memory", 3)), 3) == {"cpu": 0.3, "memory": 9}
