"""What a drill comes to, and when that is not good enough."""

from __future__ import annotations

from typing import Any

import pytest

from controlplane.standalone.drilling import account
from controlplane.standalone.drilling.account import Load
from controlplane.store import keys
from controlplane.verify.checks import Checks
from controlplane.verify.joblet_records import JobletRecord
from tests.unit.verify import past
from tests.unit.verify.past import ORDER, Past

OTHER = "01ARZ3NDEKTSV4RRFFQ69G5FAW"


def history() -> Past:
    story = Past()
    story.commit({keys.order(ORDER): past.order()})
    return story


def test_an_answer_has_exactly_the_agreed_fields() -> None:
    found = account.answer([0.03, 0.01, 0.02], Load(50.0, 49.987, [ORDER]), {ORDER: "Succeeded"}, Checks())
    assert found == {
        "kills": 3,
        "seconds": {"p50": 0.02, "p99": 0.03, "max": 0.03},
        "offered_rate": 50,
        "reached_rate": 49.99,
        "submitted": 1,
        "succeeded": 1,
        "lost": 1,
        "duplicated": 0,
    }


def test_an_order_that_history_knows_is_not_lost() -> None:
    checks = history().told_to(Checks())
    found = account.answer([0.1], Load(50, 50, [ORDER, OTHER]), {}, checks)
    assert (found["submitted"], found["succeeded"], found["lost"]) == (2, 0, 1)


def test_only_attempts_of_the_drills_own_orders_count_as_duplicated() -> None:
    checks = Checks()
    for order in (ORDER, ORDER, OTHER, OTHER):
        checks.attempts.record(JobletRecord("started", order, "job-0", 0, 1, "A", "eu", (), 7, 1.0, "boot"))
    assert account.answer([0.1], Load(50, 50, [ORDER]), {}, checks)["duplicated"] == 1


GOOD: dict[str, Any] = {
    "kills": 2, "offered_rate": 50, "reached_rate": 45.0, "submitted": 9, "succeeded": 9, "lost": 0, "duplicated": 0,
}  # fmt: skip


def test_a_drill_without_loss_under_the_load_it_promised_is_good() -> None:
    assert account.is_good(GOOD, 2)


@pytest.mark.parametrize(
    "change", [{"kills": 1}, {"reached_rate": 44.9}, {"succeeded": 8}, {"lost": 1}, {"duplicated": 1}]
)
def test_a_drill_that_falls_short_anywhere_is_not(change: dict[str, Any]) -> None:
    assert not account.is_good({**GOOD, **change}, 2)


def test_percentiles_are_values_that_were_measured() -> None:
    values = [float(value) for value in range(1, 101)]
    assert [account.rank(values, part) for part in (0.5, 0.99, 1.0)] == [50.0, 99.0, 100.0]
    assert account.rank([], 0.5) is None
