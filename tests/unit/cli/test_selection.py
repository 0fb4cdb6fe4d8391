"""What people type to name an order, a job of it, or a task."""

from __future__ import annotations

import pytest

from controlplane.cli.selection import Selection, selection_of
from controlplane.cli.wait_for_answer import Wish, holds_up
from controlplane.model.errors import Invalid
from controlplane.model.fulfilment import TaskRef
from controlplane.wire.v1 import fulfilments_pb2

ORDER = "01ARZ3NDEKTSV4RRFFQ69G5FAV"


@pytest.mark.parametrize(
    ("text", "selection"),
    [
        (ORDER, Selection(ORDER)),
        (f"{ORDER}/a.b-1", Selection(ORDER, "a.b-1")),
        (f"{ORDER}/render/12", Selection(ORDER, "render", 12)),
    ],
)
def test_an_order_a_job_and_a_task_are_told_apart(text: str, selection: Selection) -> None:
    assert selection_of(text) == selection


@pytest.mark.parametrize(
    "text", ["", "x", f"{ORDER}/", f"{ORDER}//1", f"{ORDER}/a/b", f"{ORDER}/a/-1", f"{ORDER}/a/1/2"]
)
def test_anything_else_is_refused(text: str) -> None:
    with pytest.raises(Invalid):
        selection_of(text)


@pytest.mark.parametrize(
    ("wish", "concerned"),
    [
        (Wish(ORDER, 1), True),
        (Wish(ORDER, 1, job="a"), True),
        (Wish(ORDER, 1, job="b"), False),
        (Wish(ORDER, 1, job="a", index=3), True),
        (Wish(ORDER, 1, job="a", index=4), False),
        (Wish(ORDER, 1, job="a", index=3, attempt=2), True),
        (Wish(ORDER, 1, job="a", index=3, attempt=1), False),
    ],
)
def test_a_wish_waits_for_the_tasks_that_it_names(wish: Wish, concerned: bool) -> None:
    assert wish.affects(TaskRef(job="a", index=3, attempt=2)) is concerned


@pytest.mark.parametrize(
    ("phases", "held_up"),
    [
        (("Running",), True),
        # Its end is about to be recorded, and shown.
        (("Cancelled",), True),
        (("Running", "Running"), True),
        (("Running", "Failed"), True),
        # Together with one that goes on.
        (("Cancelled", "Running"), False),
        (("Cancelled", "Succeeded"), True),
    ],
)
def test_a_wish_waits_until_its_task_has_ended_and_that_is_on_record(phases: tuple[str, ...], held_up: bool) -> None:
    fulfilment = fulfilments_pb2.Fulfilment()
    for index, phase in enumerate(phases):
        fulfilment.tasks.add(job="a", index=index, attempt=1)
        fulfilment.observed.tasks.add(job="a", index=index, attempt=1, phase=phase)
    assert holds_up(Wish(ORDER, 1, leaves=True, job="a", index=0), fulfilment) is held_up
    assert not holds_up(Wish(ORDER, 1, leaves=True, job="b"), fulfilment)
