"""Jobs that wait for others, and orders that wait for their time, as the order's ledger knows them."""

from __future__ import annotations

import msgspec
import pytest

from controlplane.cache.ledger import OrderLedger, check, check_order
from controlplane.model import dependencies
from controlplane.model.errors import Broken
from controlplane.model.order import Counts, Resolved
from controlplane.store import codec
from tests.builders import FulfilmentBuilder, OrderBuilder, a_fulfilment, an_order

NOW = "2026-01-01T00:00:00.000Z"
SOON = "2026-01-01T00:01:00.000Z"
LATER = "2026-01-01T00:02:00.000Z"

# job-1 waits for job-0, job-2 for job-1, job-3 for nothing.
CHAIN = an_order().of(2).jobs(cpu=1).after("job-0").jobs(cpu=1).after("job-1").of(3).jobs(cpu=1).after().of(1)


def opened(builder: OrderBuilder) -> OrderLedger:
    order = builder.build()
    return OrderLedger.open(order, 2, codec.decode(bytes(order.resolved), Resolved))


def run(ledger: OrderLedger, job: str, index: int, decision: str, *, not_before: str | None = None) -> None:
    one: FulfilmentBuilder = a_fulfilment(ledger.order.id).task(
        index, job=job, attempt=ledger.jobs[job].attempt(index) + 1
    )
    ledger.place(one.build(), 3)
    ledger.end(one.ended(decision, not_before=not_before))
    ledger.unplace(one.identity)


def test_a_job_is_ready_once_every_task_of_those_it_waits_for_succeeded() -> None:
    ledger = opened(CHAIN)
    assert [ledger.ready(name, NOW) for name in ledger.jobs] == [2, 0, 0]
    run(ledger, "job-0", 0, "done")
    assert (ledger.ready("job-1", NOW), ledger.waits_for("job-1")) == (0, ("job-0",))
    run(ledger, "job-0", 1, "done")
    assert [ledger.ready(name, NOW) for name in ledger.jobs] == [0, 2, 0]
    assert (ledger.waits_for("job-1"), ledger.waits_for("job-2")) == ((), ("job-1",))


def test_a_job_waits_for_all_that_it_names_whatever_order_they_end_in() -> None:
    ledger = opened(an_order().jobs(cpu=1).jobs(cpu=1).after("job-1", "job-0").jobs(cpu=1))
    run(ledger, "job-0", 0, "done")
    assert (ledger.ready("job-2", NOW), ledger.waits_for("job-2")) == (0, ("job-1",))
    run(ledger, "job-1", 0, "done")
    assert ledger.ready("job-2", NOW) == 1


def test_a_retry_of_what_is_waited_for_does_not_let_the_job_begin() -> None:
    ledger = opened(CHAIN)
    run(ledger, "job-0", 0, "done")
    run(ledger, "job-0", 1, "retry")
    assert ledger.ready("job-1", NOW) == 0
    assert not ledger.blocked("job-1")


@pytest.mark.parametrize("decision", ["fail", "cancel"])
def test_what_waits_for_a_job_that_failed_can_never_run_and_counts_as_cancelled(decision: str) -> None:
    ledger = opened(CHAIN.jobs(cpu=1))
    run(ledger, "job-0", 0, decision)
    assert [ledger.blocked(name) for name in ledger.jobs] == [False, True, True, False]
    assert [ledger.pending_of(name) for name in ledger.jobs] == [1, 0, 0, 1]
    ended = {"fail": Counts(pending=2, failed=1, cancelled=5), "cancel": Counts(pending=2, cancelled=6)}
    assert (ledger.counts(), ledger.pending()) == (ended[decision], 2)


def test_an_order_wants_no_room_when_all_that_is_left_can_never_run() -> None:
    ledger = opened(CHAIN)
    run(ledger, "job-0", 0, "done")
    assert ledger.wants_room()
    run(ledger, "job-0", 1, "fail")
    assert not ledger.wants_room()
    assert ledger.counts() == Counts(succeeded=1, failed=1, cancelled=5)


def test_an_order_has_nothing_ready_before_its_time() -> None:
    ledger = opened(an_order().of(3).jobs(cpu=1).not_before(SOON))
    assert (ledger.ready("job-0", NOW), ledger.next_time(NOW)) == (0, SOON)
    assert (ledger.ready("job-0", SOON), ledger.next_time(SOON)) == (3, None)
    assert ledger.pending() == 3


def test_the_next_time_is_that_of_the_first_retry_to_come() -> None:
    ledger = opened(an_order().of(3).jobs(cpu=1).jobs(cpu=1))
    assert ledger.next_time(NOW) is None
    run(ledger, "job-0", 0, "retry", not_before=LATER)
    run(ledger, "job-1", 2, "retry", not_before=SOON)
    assert [ledger.next_time(now) for now in (NOW, SOON, LATER)] == [SOON, LATER, None]
    assert [ledger.ready("job-0", now) for now in (NOW, SOON, LATER)] == [2, 2, 3]


def test_nothing_becomes_ready_by_itself_in_an_order_that_is_paused_or_cancelled() -> None:
    assert opened(an_order().jobs(cpu=1).not_before(SOON).paused()).next_time(NOW) is None
    assert opened(an_order().jobs(cpu=1).not_before(SOON).cancelled()).next_time(NOW) is None


def test_retries_that_share_a_moment_are_counted_each() -> None:
    ledger = opened(an_order().of(3).jobs(cpu=1))
    for index in range(3):
        run(ledger, "job-0", index, "retry", not_before=SOON)
    assert (ledger.ready("job-0", NOW), ledger.ready("job-0", SOON)) == (0, 3)
    ledger.place(a_fulfilment(ledger.order.id).task(1, attempt=2).build(), 4)
    assert (ledger.ready("job-0", NOW), ledger.ready("job-0", SOON)) == (0, 2)


def test_a_time_that_is_none_holds_nothing_up() -> None:
    ledger = opened(an_order().jobs(cpu=1))
    run(ledger, "job-0", 0, "retry", not_before="soon")
    assert (ledger.ready("job-0", NOW), ledger.next_time(NOW)) == (1, None)


@pytest.mark.parametrize("moment", ["soon", "2026-01-01T00:00:00+01:00", "2026-01-01T00:00:00.000", "~"])
def test_an_order_with_a_time_that_no_apiserver_wrote_is_broken(moment: str) -> None:
    check_order(an_order().not_before(SOON).build())
    with pytest.raises(Broken):
        check_order(an_order().not_before(moment).build())


@pytest.mark.parametrize("after", [{"a": ["gone"]}, {"a": ["a"]}, {"a": ["b"], "b": ["a"]}])
def test_an_order_whose_jobs_could_never_begin_is_broken(after: dict[str, list[str]]) -> None:
    jobs = [{"job": {"kind": "Job", "name": name}, "after": after.get(name, [])} for name in ("a", "b")]
    with pytest.raises(Broken):
        check(msgspec.json.decode(msgspec.json.encode({"jobs": jobs}), type=Resolved))


def test_what_waits_for_a_circle_waits_for_itself_too_and_what_comes_before_it_does_not() -> None:
    after = {"b": ["a"], "c": ["b", "d"], "d": ["c", "c"], "e": ["d"]}
    assert dependencies.waiting_for_itself(after) == {"c", "d", "e"}
    assert dependencies.waiting_for_itself({"b": ["a", "a"], "c": ["a", "b"]}) == frozenset()


def test_orders_without_dependencies_carry_no_graph_and_equal_ones_share_theirs() -> None:
    assert opened(an_order().jobs(cpu=1)).depends is None
    assert opened(CHAIN).depends is opened(CHAIN).depends
