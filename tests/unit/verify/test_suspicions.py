"""What does not go on: states that are ordinary for a moment, and break a promise when they last."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from controlplane.model.cluster import ClusterStatus
from controlplane.model.fulfilment import EndedTask, Observed, ObservedTask
from controlplane.model.order import Counts, OrderStatus
from controlplane.model.settings import Settings
from controlplane.store import keys
from controlplane.verify import history
from controlplane.verify.checks import Checks
from controlplane.verify.p7_strays import NOTICED_SECONDS
from controlplane.verify.p9_orders import TAKEN_UP_SECONDS
from controlplane.verify.promise_verdicts import PromiseVerdict, Violation
from tests.unit.verify import past
from tests.unit.verify.past import ORDER, Past

LICENCE = keys.claim("licence")
LONG = 1000.0


class Look:
    """A history and what was seen of it at its end; later changes of the same history are heard of then."""

    def __init__(self, story: Past) -> None:
        self.story = story
        self.checks = story.told_to(Checks())
        self.checks.suspicions.begin(0.0)
        self._heard = story.revision

    def hear(self) -> None:
        changes = [change for change in self.story.changes if change.revision > self._heard]
        for revision, events in history.by_revision(changes):
            self.checks.suspicions.change(revision, events)
        self._heard = self.story.revision

    @property
    def left(self) -> float:
        return self.checks.suspicions.left(0.0)

    def verdicts(self) -> dict[str, PromiseVerdict]:
        assert not self.checks.suspicions.left(LONG)
        self.checks.report_suspicions()
        said = (
            self.checks.exclusive.verdict(),
            self.checks.lifecycle.verdict(),
            self.checks.leader.verdict(expected=False),
        )
        return {verdict.promise: verdict for verdict in said}

    def violations(self) -> list[Violation]:
        return [violation for verdict in self.verdicts().values() for violation in verdict.violations]


def an_accepted_order(*, tasks: int = 1, cancel: bool = False) -> Past:
    story = Past()
    story.commit({keys.order(ORDER): replace(past.order(cancel=cancel), tasks_total=tasks)})
    return story


def a_ready_target(story: Past) -> Past:
    session = replace(past.live(cpu=4), lease_seconds=7)
    story.commit({keys.target_status("eu"): past.target_status("Ready"), keys.live("eu"): session})
    return story


def placed(story: Past, name: str = "A", **more: object) -> int:
    return story.commit({past.place(name): past.fulfilment(name, **more)})  # type: ignore[arg-type]


def counted(phase: str, **counts: int) -> OrderStatus:
    return OrderStatus(order=ORDER, epoch=2, phase=phase, counts=Counts(**counts))


# Strays


@pytest.mark.parametrize("phase", ["Cancelled", "Succeeded", "Failed"])
def test_what_is_desired_for_a_final_order_is_a_stray(phase: str) -> None:
    story = an_accepted_order()
    story.commit({keys.order_status(ORDER): past.status(phase)})
    revision = placed(story)
    look = Look(story)
    assert look.left == NOTICED_SECONDS
    (violation,) = look.verdicts()["P7"].violations
    assert (violation.key, violation.revision) == (past.place("A"), revision)
    assert violation.why == f"is desired though its order {ORDER} is {phase}, for longer than {NOTICED_SECONDS:g} s"


def test_what_is_desired_for_an_order_that_is_gone_is_a_stray() -> None:
    story = Past()
    placed(story)
    (violation,) = Look(story).verdicts()["P7"].violations
    assert "is gone" in violation.why


def test_what_is_desired_for_an_order_that_nobody_can_read_is_no_stray() -> None:
    story = Past()
    story.commit({keys.order(ORDER): b"poison"})
    placed(story)
    assert Look(story).violations() == []


def test_a_stray_that_goes_in_time_is_ordinary() -> None:
    story = an_accepted_order()
    story.commit({keys.order_status(ORDER): past.status("Cancelled")})
    placed(story)
    look = Look(story)
    story.commit({past.place("A"): None})
    look.hear()
    assert (look.left, look.violations()) == (0.0, [])


def test_a_stray_that_is_being_stopped_has_the_time_that_a_stop_takes() -> None:
    story = a_ready_target(an_accepted_order())
    story.commit({keys.order_status(ORDER): past.status("Cancelled")})
    placed(story)
    look = Look(story)
    placed(story, want="stop")
    look.hear()
    assert look.left > NOTICED_SECONDS
    assert [violation.key for violation in look.verdicts()["P7"].violations] == [past.place("A")]


def test_a_stray_on_a_lost_cluster_waits_for_whoever_can_say_that_it_ended() -> None:
    story = an_accepted_order()
    lost = replace(past.target_status("Suspect"), driver="kubernetes")
    story.commit({keys.order_status(ORDER): past.status("Cancelled"), keys.target_status("eu"): lost})
    placed(story, want="stop")
    assert Look(story).violations() == []


def test_what_an_open_order_has_placed_is_in_order() -> None:
    story = a_ready_target(an_accepted_order())
    placed(story)
    story.commit({keys.observed("eu", "A"): past.observed("A", "Running")})
    look = Look(story)
    assert (look.left, look.violations()) == (0.0, [])


# Claims


def test_a_claim_without_its_holder_is_found() -> None:
    story = an_accepted_order()
    revision = story.commit({LICENCE: past.claim("licence", "A")})
    look = Look(story)
    assert look.left == 15, "a holder dies within the grace time, then 10 s to notice"
    (violation,) = look.verdicts()["P4"].violations
    assert (violation.key, violation.revision) == (LICENCE, revision)


def test_a_claim_whose_holder_vanished_is_found_and_one_that_follows_it_is_not() -> None:
    story = an_accepted_order()
    story.commit({past.place("A"): past.fulfilment("A", holds=("licence",)), LICENCE: past.claim("licence", "A")})
    story.commit({past.place("A"): None})
    look = Look(story)
    story.commit({LICENCE: None})
    look.hear()
    assert look.violations() == []
    story.commit({LICENCE: past.claim("licence", "B")})
    assert [violation.key for violation in Look(story).violations()] == [LICENCE]


def test_a_claim_has_the_time_that_its_target_was_promised() -> None:
    story = an_accepted_order()
    promised = replace(past.target_status("Suspect"), stop_within=40)
    story.commit({LICENCE: past.claim("licence", "A"), keys.target_status("eu"): promised})
    assert Look(story).left == 50


@pytest.mark.parametrize("lives_on", ["the joblet still stops something", "nothing kills pods of a silent cluster"])
def test_a_claim_whose_holder_may_live_waits(lives_on: str) -> None:
    story = an_accepted_order()
    story.commit({LICENCE: past.claim("licence", "A")})
    if lives_on.startswith("the joblet"):
        story.commit({keys.live("eu"): replace(past.live(cpu=1), leftovers=1)})
    else:
        story.commit({keys.target_status("eu"): replace(past.target_status("Suspect"), driver="kubernetes")})
    assert Look(story).violations() == []


def test_a_claim_with_its_holder_is_in_order() -> None:
    story = an_accepted_order()
    story.commit({past.place("A"): past.fulfilment("A", holds=("licence",)), LICENCE: past.claim("licence", "A")})
    verdict = Look(story).verdicts()["P4"]
    assert (verdict.ok, verdict.violations) == (True, ())


# Reports


def test_a_placed_task_that_a_ready_target_does_not_report_is_found() -> None:
    story = a_ready_target(an_accepted_order())
    revision = placed(story)
    look = Look(story)
    assert look.left == 7, "the lease of the session"
    (violation,) = look.verdicts()["P9"].violations
    assert (violation.key, violation.revision) == (past.place("A"), revision)


def test_a_placed_task_that_is_reported_in_time_is_in_order() -> None:
    story = a_ready_target(an_accepted_order())
    placed(story)
    look = Look(story)
    story.commit({keys.observed("eu", "A"): past.observed("A", "Starting")})
    look.hear()
    assert look.violations() == []


@pytest.mark.parametrize("phase", ["Suspect", "Cordoned", ""])
def test_nobody_expects_a_report_of_a_target_that_is_not_ready(phase: str) -> None:
    story = an_accepted_order()
    if phase:
        story.commit({keys.target_status("eu"): past.target_status(phase)})
    placed(story)
    assert Look(story).violations() == []


def test_a_target_that_becomes_suspect_meanwhile_owes_no_report() -> None:
    story = a_ready_target(an_accepted_order())
    placed(story)
    look = Look(story)
    story.commit({keys.target_status("eu"): past.target_status("Suspect")})
    look.hear()
    assert look.violations() == []


def test_a_target_without_a_session_may_be_silent_as_long_as_the_settings_say() -> None:
    story = an_accepted_order()
    settings = Settings(joblet_lease=6, target_suspect=20, target_grace=30)
    story.commit({keys.target_status("eu"): past.target_status("Ready"), keys.SETTINGS: settings})
    placed(story)
    assert Look(story).left == 26


# Ends


def test_an_order_whose_tasks_were_all_reported_as_ended_but_which_is_not_final_is_found() -> None:
    story = a_ready_target(an_accepted_order(tasks=2))
    story.commit({keys.order_status(ORDER): counted("Running", running=2)})
    for index, name in enumerate("AB"):
        placed(story, name, index=index)
        report = story.commit({keys.observed("eu", name): past.observed(name, "Succeeded")})
    look = Look(story)
    assert look.left == TAKEN_UP_SECONDS
    (violation,) = look.violations()
    assert (violation.key, violation.revision) == (keys.order(ORDER), report)
    assert violation.why.startswith("all 2 tasks have ended, but it is Running")


def test_an_order_that_becomes_final_in_time_is_in_order() -> None:
    story = a_ready_target(an_accepted_order())
    placed(story)
    story.commit({keys.observed("eu", "A"): past.observed("A", "Succeeded")})
    look = Look(story)
    over = {past.place("A"): None, keys.observed("eu", "A"): None, keys.order_status(ORDER): past.status("Succeeded")}
    story.commit(over)
    look.hear()
    assert look.violations() == []


def test_an_end_that_is_not_taken_up_while_others_run_is_found_by_its_placement() -> None:
    story = a_ready_target(an_accepted_order(tasks=3))
    for index, name in enumerate("AB"):
        placed(story, name, index=index)
    story.commit({keys.observed("eu", "A"): past.observed("A", "Failed")})
    story.commit({keys.observed("eu", "B"): past.observed("B", "Running")})
    assert [violation.key for violation in Look(story).violations()] == [past.place("A")]


def test_a_fulfilment_of_which_one_task_still_runs_has_not_ended() -> None:
    story = a_ready_target(an_accepted_order(tasks=2))
    placed(story)
    tasks = tuple(
        ObservedTask(job="render", index=index, attempt=1, phase=phase)
        for index, phase in enumerate(["Succeeded", "Running"])
    )
    report = Observed(id="A", target="eu", session="s", report=1, phase="Running", tasks=tasks)
    story.commit({keys.observed("eu", "A"): report})
    assert Look(story).violations() == []


@pytest.mark.parametrize(("decision", "stuck"), [("done", True), ("fail", True), ("retry", False), ("hold", False)])
def test_an_order_whose_ends_are_all_on_record_has_to_be_final(decision: str, stuck: bool) -> None:
    story = an_accepted_order()
    task = EndedTask(job="render", index=0, attempt=1, phase="Failed", decision=decision)
    story.commit({keys.ended(ORDER, "A"): replace(past.ended("A"), tasks=(task,))})
    assert [violation.key for violation in Look(story).violations()] == ([keys.order(ORDER)] if stuck else [])


def test_the_newest_attempt_of_a_task_counts() -> None:
    story = an_accepted_order()
    for attempt, decision in ((2, "retry"), (1, "done")):
        task = EndedTask(job="render", index=0, attempt=attempt, phase="Failed", decision=decision)
        story.commit({keys.ended(ORDER, f"A{attempt}"): replace(past.ended(f"A{attempt}"), tasks=(task,))})
    assert Look(story).violations() == []


def test_a_cancelled_order_of_which_nothing_is_placed_has_to_be_final() -> None:
    (violation,) = Look(an_accepted_order(cancel=True)).violations()
    assert "it is cancelled and nothing of it is placed, but it is Pending" in violation.why


def test_an_order_that_failed_with_a_task_has_to_be_final() -> None:
    story = an_accepted_order(tasks=5)
    task = EndedTask(job="render", index=0, attempt=1, phase="Failed", decision="fail_order")
    story.commit({keys.ended(ORDER, "A"): replace(past.ended("A"), tasks=(task,))})
    assert [violation.key for violation in Look(story).violations()] == [keys.order(ORDER)]


def test_an_order_that_counts_all_its_tasks_as_ended_has_to_be_final() -> None:
    story = an_accepted_order(tasks=3)
    story.commit({keys.order_status(ORDER): counted("Running", succeeded=1, failed=1, cancelled=1)})
    assert [violation.key for violation in Look(story).violations()] == [keys.order(ORDER)]


def test_an_order_that_waits_is_in_order() -> None:
    story = an_accepted_order(tasks=3)
    story.commit({keys.order_status(ORDER): counted("Running", succeeded=2, pending=1)})
    look = Look(story)
    assert (look.left, look.violations()) == (0.0, [])


def test_nothing_goes_on_while_a_restore_waits_for_joblets() -> None:
    story = a_ready_target(an_accepted_order(cancel=True))
    placed(story)
    waits = ClusterStatus(epoch=2, cluster_id="c", since=past.NOW, restoring=True)
    story.commit({keys.CLUSTER_STATUS: waits})
    assert Look(story).violations() == []


def test_what_could_not_be_listened_to_is_neither_broken_nor_in_order() -> None:
    story = an_accepted_order()
    story.commit({keys.order_status(ORDER): past.status("Succeeded")})
    placed(story)
    look = Look(story)
    look.checks.suspicions.give_up("history was compacted meanwhile")
    verdict = look.verdicts()["P7"]
    assert verdict.ok is None
    assert "1 suspicions were not settled" in verdict.why


def test_what_was_looked_at_is_counted() -> None:
    story = a_ready_target(an_accepted_order())
    placed(story)
    before = story.told_to(Checks()).leader.tally.checked
    assert Look(story).verdicts()["P9"].checked == before + 2, "one placement, one open order"
