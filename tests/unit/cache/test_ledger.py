"""The ledger of one order: attempts, counts, what may be placed."""

from __future__ import annotations

import msgspec
import pytest

from controlplane.cache.ledger import OrderLedger, check
from controlplane.model.errors import Broken
from controlplane.model.order import Counts, Resolved
from controlplane.store import codec
from tests.builders import FulfilmentBuilder, OrderBuilder, a_fulfilment, an_order

NOW = "2026-01-01T00:00:00.000Z"
LATER = "2026-01-01T00:01:00.000Z"


def opened(builder: OrderBuilder) -> OrderLedger:
    order = builder.build()
    return OrderLedger.open(order, 2, codec.decode(bytes(order.resolved), Resolved))


def placed(ledger: OrderLedger, *indices: int, attempt: int = 1) -> FulfilmentBuilder:
    builder = a_fulfilment(ledger.order.id)
    for index in indices:
        builder = builder.task(index, attempt=attempt)
    ledger.place(builder.build(), 3)
    return builder


def ended(ledger: OrderLedger, builder: FulfilmentBuilder, decision: str, *, not_before: str | None = None) -> None:
    ledger.end(builder.ended(decision, not_before=not_before))
    ledger.unplace(builder.identity)


def test_a_fresh_order_offers_its_tasks_by_index_with_the_first_attempt() -> None:
    ledger = opened(an_order().of(3).jobs(cpu=1))
    assert ledger.jobs["job-0"].take(2, NOW) == [(0, 1), (1, 1)]
    assert ledger.counts() == Counts(pending=3)


def test_what_is_placed_is_not_offered_again() -> None:
    ledger = opened(an_order().of(3).jobs(cpu=1))
    placed(ledger, 0, 2)
    assert ledger.jobs["job-0"].take(5, NOW) == [(1, 1)]
    assert ledger.counts() == Counts(pending=1, placed=2)


def test_a_retry_is_offered_first_and_with_the_next_attempt() -> None:
    ledger = opened(an_order().of(3).jobs(cpu=1))
    ended(ledger, placed(ledger, 1), "retry")
    assert ledger.jobs["job-0"].take(5, NOW) == [(1, 2), (0, 1), (2, 1)]


def test_a_retry_that_backs_off_is_offered_only_when_its_time_has_come() -> None:
    ledger = opened(an_order().of(1).jobs(cpu=1))
    ended(ledger, placed(ledger, 0), "retry", not_before=LATER)
    job = ledger.jobs["job-0"]
    assert (job.take(5, NOW), job.ready(NOW)) == ([], 0)
    assert (job.take(5, LATER), job.ready(LATER)) == ([(0, 2)], 1)


def test_a_time_to_wait_for_is_forgotten_once_the_task_is_placed() -> None:
    ledger = opened(an_order().of(2).jobs(cpu=1))
    ended(ledger, placed(ledger, 0), "retry", not_before=LATER)
    placed(ledger, 0, attempt=2)
    assert ledger.jobs["job-0"].ready(NOW) == 1


def test_a_final_task_stays_final_whatever_is_told_late() -> None:
    ledger = opened(an_order().of(1).jobs(cpu=1))
    first = placed(ledger, 0)
    ended(ledger, first, "done")
    ledger.end(first.ended("fail"))
    placed(ledger, 0, attempt=2)
    assert ledger.counts().succeeded == 1
    assert ledger.jobs["job-0"].take(5, NOW) == []


def test_an_end_of_an_older_attempt_changes_nothing() -> None:
    ledger = opened(an_order().of(1).jobs(cpu=1))
    first = placed(ledger, 0)
    ended(ledger, first, "retry")
    placed(ledger, 0, attempt=2)
    ledger.end(first.ended("fail"))
    assert ledger.counts() == Counts(placed=1)


def test_reports_move_tasks_from_placed_to_running_and_give_the_percent() -> None:
    ledger = opened(an_order().of(4).jobs(cpu=1))
    one, other = placed(ledger, 0), placed(ledger, 1)
    ledger.observe(one.identity, one.observed("Running", percent=10), 4)
    ledger.observe(one.identity, one.observed("Running", report=2, percent=50), 5)
    assert ledger.counts() == Counts(pending=2, placed=1, running=1)
    ended(ledger, other, "done")
    assert ledger.percent() == (100 + 50) // 4


def test_a_reported_end_waits_to_be_released() -> None:
    ledger = opened(an_order().of(1).jobs(cpu=1))
    one = placed(ledger, 0)
    ledger.observe(one.identity, one.observed("Running"), 4)
    ledger.observe(one.identity, one.observed("Succeeded", report=2), 5)
    assert ledger.over == {one.identity}
    ended(ledger, one, "done")
    assert (ledger.over, ledger.running, ledger.percents, ledger.live) == (set(), 0, 0, {})


def test_a_task_whose_fulfilment_vanished_without_an_end_is_an_orphan_and_still_pending() -> None:
    ledger = opened(an_order().of(2).jobs(cpu=1))
    ledger.unplace(placed(ledger, 0).identity)
    assert ledger.orphans()
    assert ledger.counts() == Counts(pending=2)
    assert ledger.jobs["job-0"].take(5, NOW) == [(1, 1)]


def test_a_cancelled_order_counts_what_never_ran_as_cancelled() -> None:
    ledger = opened(an_order().of(3).jobs(cpu=1).cancelled())
    placed(ledger, 0)
    assert ledger.counts() == Counts(placed=1, cancelled=2)
    assert not ledger.wants_room()


@pytest.mark.parametrize("index", [-1, 3, 10**9])
def test_a_fulfilment_of_tasks_that_the_order_does_not_have_comes_and_goes_without_harm(index: int) -> None:
    ledger = opened(an_order().of(3).jobs(cpu=1))
    stray = placed(ledger, index)
    ledger.observe(stray.identity, stray.observed("Succeeded"), 4)
    ledger.end(stray.ended("done"))
    ledger.unplace(stray.identity)
    assert ledger.counts() == Counts(pending=3)


@pytest.mark.parametrize(
    "jobs",
    [
        [{"job": {"kind": "Job", "name": "j"}, "count": -1}],
        [{"job": {"kind": "Job", "name": "j"}, "count": 10**12}],
        [{"job": {"kind": "Job", "name": "j", "requests": {"cpu": -1}}}],
        [{"job": {"kind": "Job", "name": "j", "requests": {"cpu": 10**400}}}],
        [{"job": {"kind": "Job", "name": "j"}}, {"job": {"kind": "Job", "name": "j"}}],
    ],
)
def test_an_order_that_no_apiserver_admitted_is_broken(jobs: list[object]) -> None:
    with pytest.raises(Broken):
        check(codec.decode(msgspec.json.encode({"jobs": jobs}), Resolved))
