"""What people type to name an order, a job of it, or a task."""

from __future__ import annotations

import pytest

from controlplane.cli.confirming import Wish
from controlplane.cli.selection import Selection, selection_of
from controlplane.model.errors import Invalid
from controlplane.model.fulfilment import TaskRef

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
    assert wish.concerns(TaskRef(job="a", index=3, attempt=2)) is concerned
