"""P7: phases go along the tables, ends are ends, late reports are refused."""

from __future__ import annotations

import pytest

from controlplane.model.lifecycle import FINAL_ORDER, ORDER, TARGET, OrderPhase, TargetPhase, may_follow
from controlplane.store import keys
from controlplane.verify.p7_lifecycle import LifecycleCheck
from tests.unit.verify import past
from tests.unit.verify.past import ORDER as NAME
from tests.unit.verify.past import Past

STATUS = keys.order_status(NAME)
REPORT = keys.observed("eu", "A")


def whys(story: Past, *, since: int = 1) -> list[str]:
    return [violation.why for violation in story.told_to(LifecycleCheck(), since=since).verdict().violations]


@pytest.mark.parametrize("before", OrderPhase)
@pytest.mark.parametrize("after", OrderPhase)
def test_an_order_changes_along_the_table_only(before: OrderPhase, after: OrderPhase) -> None:
    story = Past()
    since = story.commit({STATUS: past.status(before)})
    story.commit({STATUS: past.status(after)})
    assert (whys(story, since=since) == []) == (may_follow(ORDER, before, after))


@pytest.mark.parametrize("before", TargetPhase)
@pytest.mark.parametrize("after", TargetPhase)
def test_a_target_changes_along_the_table_only(before: TargetPhase, after: TargetPhase) -> None:
    story = Past()
    since = story.commit({keys.target_status("eu"): past.target_status(before)})
    story.commit({keys.target_status("eu"): past.target_status(after)})
    assert (whys(story, since=since) == []) == (may_follow(TARGET, before, after))


def test_an_order_without_status_is_pending_and_a_target_is_provisioning() -> None:
    story = Past()
    story.commit({STATUS: past.status("Running"), keys.target_status("eu"): past.target_status("Ready")})
    assert whys(story) == []
    story.commit({keys.target_status("us"): past.target_status("Drained")})
    assert whys(story) == ["went from Provisioning to Drained"]


@pytest.mark.parametrize("phase", sorted(FINAL_ORDER))
def test_a_final_status_may_go_but_nothing_may_follow_it(phase: str) -> None:
    story = Past()
    story.commit({STATUS: past.status(phase)})
    story.commit({STATUS: None})
    assert whys(story) == []
    story.commit({STATUS: past.status("Running")})
    assert whys(story) == [f"went from {phase} to Running"]


def test_a_status_that_goes_while_the_order_runs_is_found() -> None:
    story = Past()
    story.commit({STATUS: past.status("Running")})
    story.commit({STATUS: None})
    assert whys(story) == ["was deleted while the order was Running"]


def test_a_target_that_is_removed_and_made_again_begins_anew() -> None:
    story = Past()
    for phase in ("Ready", "Suspect", "Failed", None, "Provisioning", "Ready"):
        story.commit({keys.target_status("eu"): past.target_status(phase) if phase else None})
    assert whys(story) == []


@pytest.mark.parametrize(
    ("phases", "good"),
    [
        (("Starting", "Running", "Succeeded"), True),
        (("Starting", "Starting", "Failed"), True),
        (("Running", "Running", "Cancelled", "Cancelled"), True),
        (("Running", "Starting"), False),
        (("Succeeded", "Running"), False),
        (("Failed", "Succeeded"), False),
        (("Dancing",), False),
    ],
)
def test_reports_go_forward_only(phases: tuple[str, ...], good: bool) -> None:
    story = Past()
    story.commit({past.place("A"): past.fulfilment("A")})
    for phase in phases:
        story.commit({REPORT: past.observed("A", phase)})
    assert (whys(story) == []) == good


def test_a_report_for_what_is_not_desired_is_found() -> None:
    story = Past()
    since = story.commit({past.place("A"): past.fulfilment("A")})
    story.commit({REPORT: past.observed("A", "Running")})
    story.commit({past.place("A"): None, REPORT: None})
    assert whys(story, since=since) == []
    story.commit({REPORT: past.observed("A", "Failed")})
    assert whys(story, since=since) == ["was reported while its fulfilment was not desired"]


def test_a_report_in_the_transaction_that_places_it_is_too_early() -> None:
    story = Past()
    story.commit({past.place("A"): past.fulfilment("A"), REPORT: past.observed("A", "Starting")})
    assert len(whys(story)) == 1


def test_an_end_that_is_written_twice_is_found() -> None:
    story = Past()
    end = keys.ended(NAME, "A")
    story.commit({end: past.ended("A")})
    story.commit({end: None})
    assert whys(story) == []
    story.commit({end: past.ended("A")})
    story.commit({end: past.ended("A", attempt=2)})
    assert whys(story) == ["was written again: how an attempt ended never changes"]


def test_poison_and_sessions_have_no_phase() -> None:
    story = Past()
    story.commit({STATUS: b"{", keys.live("eu"): past.live(cpu=1), REPORT: b"x", keys.target_status("eu"): b"1"})
    assert whys(story) == []
    story.commit({STATUS: None, REPORT: None, keys.target_status("eu"): None})
    assert whys(story) == []
