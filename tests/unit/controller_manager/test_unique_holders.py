"""When claims of a lost target go to others: where nothing kills holders, only when their end is certain."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from controlplane.cache.ledger import LiveFulfilment, OrderLedger
from controlplane.controller_manager import unique_holders
from controlplane.controller_manager.target_phase import HOLDERS, TargetState, reason_of
from controlplane.model.fulfilment import Observed, TaskSpec
from controlplane.model.lifecycle import TargetPhase
from controlplane.model.order import Order, Stopped
from controlplane.model.silence import POD_STOP_SECONDS
from controlplane.model.target import Live, Target, TargetStatus
from tests.builders import FulfilmentBuilder, a_fulfilment, an_order

ORDER = an_order().of(2).jobs(cpu=1)
HOLDER = a_fulfilment(ORDER.identity).task(0).holding("licence")


def a_live(
    phase: str = "Running", *, limit: float | None = 100, of: FulfilmentBuilder = HOLDER, reported: bool = True
) -> LiveFulfilment:
    fulfilment = replace(of.build(), jobs={"job-0": TaskSpec(time_limit=limit)})
    observed: Observed | None = of.observed(phase) if reported else None
    return LiveFulfilment(fulfilment, 5, observed, 6 if reported else 0)


def a_ledger(*words: Stopped) -> OrderLedger:
    order: Order = replace(ORDER.build(), stopped=words)
    return OrderLedger(order, 1, order.resolved, {})  # type: ignore[arg-type]


def frees_in(live: LiveFulfilment, *words: Stopped, silent: float = 0, grace: float = 10) -> float | None:
    return unique_holders.frees_in(live, a_ledger(*words), silent=silent, grace=grace)


def test_a_pod_that_ran_is_over_when_its_time_limit_and_the_time_to_stop_it_have_passed() -> None:
    assert frees_in(a_live()) == 100 + POD_STOP_SECONDS
    assert frees_in(a_live(), silent=100 + POD_STOP_SECONDS) == 0
    assert frees_in(a_live(), silent=30, grace=90) == 160


def test_the_pod_of_several_tasks_lasts_as_long_as_the_longest_of_them() -> None:
    both = HOLDER.task(0, job="job-1")
    live = a_live(of=both)
    live.fulfilment = replace(live.fulfilment, jobs={"job-0": TaskSpec(time_limit=5), "job-1": TaskSpec(time_limit=7)})
    assert frees_in(live) == 7 + POD_STOP_SECONDS
    live.fulfilment = replace(live.fulfilment, jobs={"job-0": TaskSpec(time_limit=5), "job-1": TaskSpec()})
    assert frees_in(live) is None


UNREADABLE = LiveFulfilment(a_live().fulfilment, 5, None, 6)


@pytest.mark.parametrize("live", [a_live(limit=None), a_live("Starting"), UNREADABLE])
def test_no_time_is_enough_for_what_has_no_limit_or_may_still_begin(live: LiveFulfilment) -> None:
    assert frees_in(live, silent=1e9) is None


def test_what_never_started_or_holds_nothing_goes_at_once() -> None:
    assert frees_in(a_live(reported=False)) == 0
    assert frees_in(a_live(limit=None, of=a_fulfilment(ORDER.identity).task(0))) == 0


def test_a_persons_word_counts_for_the_attempt_that_it_names_and_only_when_all_of_the_pod_are_named() -> None:
    first, second = Stopped(job="job-0", index=0, attempt=1), Stopped(job="job-0", index=1, attempt=1)
    both = a_live(of=HOLDER.task(1), limit=None)
    assert frees_in(a_live(limit=None), first) == 0
    assert frees_in(a_live(limit=None), replace(first, attempt=2)) is None
    assert frees_in(both, first) is None
    assert frees_in(both, first, second) == 0


def a_sight(driver: str, *, session: str = "", said: str = "") -> TargetState:
    live = Live(target="t", session=session, instance="i", secret_digest="", driver=session) if session else None
    before = TargetStatus(target="t", epoch=1, phase="Failed", driver=driver)
    return TargetState(Target(name="t", driver=said), live, 1, before, silent=20, grace=10)


def test_only_a_cluster_keeps_its_holders_and_says_so() -> None:
    placed = [(a_live(limit=None), a_ledger())]
    name = HOLDER.identity
    assert unique_holders.kept(placed, a_sight("kubernetes")) == {name: None}
    assert unique_holders.kept([(a_live(), a_ledger())], a_sight("kubernetes")) == {name: 80 + POD_STOP_SECONDS}
    assert unique_holders.kept(placed, a_sight("process")) == {}
    assert reason_of(a_sight("kubernetes"), TargetPhase.FAILED) == HOLDERS
    assert reason_of(a_sight("process"), TargetPhase.FAILED) == "JobletSilent"


def test_the_driver_is_the_last_sessions_whatever_the_target_says_now() -> None:
    assert a_sight("kubernetes", said="process").driver == "kubernetes"
    assert a_sight("", said="kubernetes").driver == "kubernetes"
    assert a_sight("kubernetes", session="process").driver == "process"
