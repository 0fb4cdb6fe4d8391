"""What follows the end of an attempt: every reason with every policy, and how retries are counted and delayed."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from controlplane.model import failure, times
from controlplane.model.failure import Circumstances, FailureDecision
from controlplane.model.fulfilment import ObservedTask
from controlplane.model.job import FailureMatch, FailurePolicy

NOW = "2026-01-01T00:00:00.000Z"
# What the defaults make of each reason.
BY_DEFAULT = {
    "Failed": "fail",
    "StartError": "fail",
    "ImageError": "fail",
    "TimedOut": "fail",
    "Evicted": "retry",
    "Preempted": "retry",
    "TargetLost": "retry",
    "Lost": "retry",
    "DeadlineExceeded": "fail",
    "Declined": "fail",
}


def on(*reasons: str, exit_codes: tuple[int, ...] = (), attempts: tuple[int, ...] = ()) -> FailureMatch:
    return FailureMatch(reasons=reasons, exit_codes=exit_codes, attempts=attempts)


RETRY = FailurePolicy(action="retry", limit=3)
# Every policy, and what it decides; None leaves it to the defaults.
POLICIES: dict[str, tuple[FailurePolicy | None, str | None]] = {
    "none": (None, None),
    "retry": (RETRY, "retry"),
    "retry without a limit": (FailurePolicy(action="retry"), "retry"),
    "retry with nothing left": (FailurePolicy(action="retry", limit=0), "fail"),
    "retry later": (FailurePolicy(action="retry", backoff=10), "retry"),
    "retry elsewhere": (FailurePolicy(action="retry", elsewhere=True), "retry"),
    "ignore": (FailurePolicy(action="ignore"), "ignore"),
    "fail": (FailurePolicy(action="fail"), "fail"),
    "fail the order": (FailurePolicy(action="fail_order"), "fail_order"),
    "hold": (FailurePolicy(action="hold"), "hold"),
    "another exit code": (FailurePolicy(on=on(exit_codes=(9,)), action="ignore"), None),
    "another attempt": (FailurePolicy(on=on(attempts=(2,)), action="ignore"), None),
    "this exit code and attempt": (FailurePolicy(on=on(exit_codes=(1,), attempts=(1,)), action="hold"), "hold"),
}


def seen(phase: str = "Failed", **said: Any) -> ObservedTask:
    return ObservedTask(**{"job": "j", "index": 0, "attempt": 1, "phase": phase, "exit_code": 1, **said})


def known(**said: Any) -> Circumstances:
    return Circumstances(**{"order": "o", "target": "t1", "now": NOW, **said})


def test_the_table_knows_every_reason_and_every_action() -> None:
    assert set(BY_DEFAULT) == set(failure.REASONS)
    assert {policy.action for policy, _ in POLICIES.values() if policy is not None} == set(failure.ACTIONS)


@pytest.mark.parametrize("reason", [reason for reason in failure.REASONS if reason != "Preempted"])
@pytest.mark.parametrize("named", POLICIES)
@pytest.mark.parametrize("whose", ["of_order", "of_job"])
@pytest.mark.parametrize("phase", ["Failed", "Cancelled"])
def test_every_reason_with_every_policy(reason: str, named: str, whose: str, phase: str) -> None:
    policy, expected = POLICIES[named]
    policies = () if policy is None else (policy,)
    decision = failure.decide(seen(phase, reason=reason), known(**{whose: policies}))
    assert decision.action == (expected or BY_DEFAULT[reason])
    assert reason in decision.why
    name = "order[0]" if whose == "of_order" else "job[0]"
    assert decision.policy == (name if expected else f"default[{int(BY_DEFAULT[reason] == 'fail')}]")
    assert decision.elsewhere is (named == "retry elsewhere")
    assert bool(decision.not_before) is (named == "retry later")


@pytest.mark.parametrize("reason", failure.REASONS)
@pytest.mark.parametrize("other", failure.REASONS)
def test_a_policy_for_one_reason_decides_about_no_other(reason: str, other: str) -> None:
    held = FailurePolicy(on=on(other), action="hold")
    decision = failure.decide(seen(reason=reason), known(of_job=(held,)))
    assert decision.action == ("hold" if reason == other else BY_DEFAULT[reason])


@pytest.mark.parametrize("reason", ["", "ExitCode", "SomethingNew"])
def test_an_unknown_reason_counts_as_failed(reason: str) -> None:
    assert (
        failure.decide(seen(reason=reason), known(of_job=(FailurePolicy(on=on("Failed"), action="hold"),)))[0] == "hold"
    )


def test_the_first_match_decides_and_the_order_goes_before_the_job() -> None:
    first, second = FailurePolicy(on=on("Lost"), action="hold"), FailurePolicy(action="ignore")
    assert failure.decide(seen(reason="Lost"), known(of_job=(first, second))).policy == "job[0]"
    assert failure.decide(seen(reason="Failed"), known(of_job=(first, second))).policy == "job[1]"
    assert failure.decide(seen(reason="Lost"), known(of_order=(second,), of_job=(first,))).policy == "order[0]"


@pytest.mark.parametrize("named", POLICIES)
@pytest.mark.parametrize("retries", [0, 5, 1000])
@pytest.mark.parametrize("until", [None, "2026-01-01T00:00:00.000Z"])
def test_a_preempted_attempt_is_always_tried_again_unless_a_policy_names_it(
    named: str, retries: int, until: str | None
) -> None:
    policy, expected = POLICIES[named]
    retried = {("default[0]", "Preempted"): retries}
    policies = () if policy is None else (policy,)
    ended = seen("Cancelled", reason="Preempted", exit_code=137)
    decision = failure.decide(ended, known(of_job=policies, retried=retried, until=until))
    assert (decision.action, decision.policy, decision.not_before) == ("retry", "default[0]", None)
    if policy is not None:
        said = msgspec.structs.replace(policy, on=on("Preempted"))
        assert failure.decide(ended, known(of_job=(said,))).action == (expected or "ignore")


@pytest.mark.parametrize("reason", sorted(failure.RETRIED - {"Preempted"}))
def test_the_fifth_retry_of_a_lost_attempt_is_the_last(reason: str) -> None:
    decided = [failure.decide(seen(reason=reason), known(retried={("default[0]", reason): n})) for n in range(8)]
    assert [decision.action for decision in decided] == ["retry"] * 5 + ["fail"] * 3


def test_retries_count_for_each_policy_and_reason_by_itself() -> None:
    retried = {("job[0]", "Lost"): 3, ("order[0]", "Failed"): 3}
    for reason, action in (("Lost", "fail"), ("Failed", "retry")):
        assert failure.decide(seen(reason=reason), known(of_job=(RETRY,), retried=retried)).action == action


@pytest.mark.parametrize(
    ("phase", "reason", "wishes", "decision"),
    [
        ("Succeeded", "", {}, "done"),
        ("Succeeded", "", {"cancelled": True}, "done"),
        ("Succeeded", "", {"moved": True}, "done"),
        ("Failed", "Failed", {"cancelled": True}, "cancel"),
        ("Failed", "TargetLost", {"cancelled": True}, "cancel"),
        ("Failed", "Failed", {"moved": True}, "fail"),
        ("Cancelled", "", {}, "cancel"),
        ("Cancelled", "Cancelled", {}, "cancel"),
        ("Cancelled", "OrderFailed", {}, "cancel"),
        ("Cancelled", "Moved", {}, "move"),
        ("Cancelled", "Preempted", {"moved": True}, "move"),
        ("Cancelled", "Moved", {"cancelled": True}, "cancel"),
        ("Cancelled", "DeadlineExceeded", {}, "fail"),
    ],
)
def test_no_policy_is_asked_about_success_and_wishes(
    phase: str, reason: str, wishes: dict[str, bool], decision: str
) -> None:
    assert failure.decide(seen(phase, reason=reason), known(**wishes)).action == decision


# Delays ---------------------------------------------------------------------------------------------------------------


def waited(decision: FailureDecision) -> float:
    assert decision.not_before is not None
    return (times.parse(decision.not_before, "") - times.parse(NOW, "")).total_seconds()


def test_the_delay_doubles_with_each_retry_up_to_its_cap() -> None:
    policy = FailurePolicy(action="retry", limit=100, backoff=10, backoff_cap=100)
    delays = [
        waited(failure.decide(seen(reason="Lost"), known(of_job=(policy,), retried={("job[0]", "Lost"): n})))
        for n in range(60)
    ]
    for delay, least in zip(delays, (10, 20, 40, 80), strict=False):
        assert least <= delay <= 1.2 * least
    assert set(delays[4:]) == {100}


@given(st.integers(1, 9), st.integers(0, 9), st.floats(0.001, 1e7), st.integers(0, 1000))
def test_the_same_end_always_waits_as_long(attempt: int, index: int, backoff: float, retries: int) -> None:
    policy = FailurePolicy(action="retry", limit=1001, backoff=backoff)
    task = seen(reason="Lost", attempt=attempt, index=index)
    circumstances = known(of_job=(policy,), retried={("job[0]", "Lost"): retries})
    first = failure.decide(task, circumstances)
    assert first == failure.decide(task, circumstances)
    assert 0 <= waited(first) <= max(backoff, failure.DEFAULT_CAP_SECONDS) + 0.001


def test_tasks_that_failed_together_do_not_come_back_together() -> None:
    policy = FailurePolicy(action="retry", backoff=1000)
    waits = {
        failure.decide(seen(reason="Lost", index=index), known(of_job=(policy,))).not_before for index in range(20)
    }
    assert len(waits) > 15


@pytest.mark.parametrize(("until", "action"), [("2026-01-01T00:00:12.000Z", "retry"), (NOW, "fail")])
def test_who_could_not_make_the_deadline_is_not_tried_again(until: str, action: str) -> None:
    policy = FailurePolicy(action="retry", backoff=10)
    decision = failure.decide(seen(reason="Lost"), known(of_job=(policy,), until=until))
    assert decision.action == action


# Records --------------------------------------------------------------------------------------------------------------


def test_the_record_says_what_was_decided_and_why() -> None:
    policy = FailurePolicy(on=on(exit_codes=(1,)), action="retry", backoff=10, elsewhere=True)
    ended = failure.end(seen(reason="Failed", message="m"), known(of_job=(policy,), avoid=("t0",)))
    assert (ended.decision, ended.policy, ended.avoid) == ("retry", "job[0]", ("t0", "t1"))
    assert (ended.phase, ended.exit_code, ended.reason, ended.message) == ("Failed", 1, "Failed", "m")
    assert ended.why == "Failed: policy job[0] tries again, 1 of 5, elsewhere"
    assert (ended.not_before or "") > NOW


def test_an_ignored_end_keeps_its_exit_code_and_reason() -> None:
    ended = failure.end(seen(reason="Failed", exit_code=3), known(of_job=(FailurePolicy(action="ignore"),)))
    assert (ended.decision, ended.phase, ended.exit_code, ended.reason) == ("ignore", "Failed", 3, "Failed")


def test_who_is_moved_avoids_the_target_it_left_and_who_just_tries_again_does_not() -> None:
    assert failure.end(seen("Cancelled", reason="Moved"), known()).avoid == ("t1",)
    assert failure.end(seen(reason="Lost"), known()).avoid == ()
    assert failure.end(seen(reason="Lost"), known(avoid=("t0",))).avoid == ("t0",)
    assert failure.end(seen(reason="Failed"), known(avoid=("t0",))).avoid == ()
    full = tuple(f"t{n}" for n in range(2, 18))
    assert failure.end(seen("Cancelled", reason="Moved"), known(avoid=full)).avoid == (*full[1:], "t1")


def test_a_cancelled_attempt_is_recorded_as_cancelled_whatever_killed_it() -> None:
    assert failure.end(seen(reason="Failed"), known(cancelled=True)).phase == "Cancelled"


def test_the_joblets_own_time_of_the_end_goes_before_the_leaders() -> None:
    assert failure.end(seen(finished="theirs"), known()).finished == "theirs"
    assert failure.end(seen(), known()).finished == NOW


def test_a_stored_action_that_nobody_knows_fails_the_task() -> None:
    strange = msgspec.structs.replace(RETRY, action="shrug")
    assert failure.decide(seen(), known(of_job=(strange,))).action == "fail"
