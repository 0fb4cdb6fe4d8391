"""P9: an attempt whose process is gone does not stay Running; told by the joblets' records and the processes here."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from controlplane.store import keys
from controlplane.verify.joblet_records import JobletRecord
from controlplane.verify.p9_dead import UnnoticedDeaths
from controlplane.verify.present import Present
from controlplane.verify.suspicion import Suspicion
from tests.unit.verify import past
from tests.unit.verify.past import ORDER, Past


def line(event: str) -> JobletRecord:
    return JobletRecord(event, ORDER, "render", 0, 1, "A", "eu", (), 7, 1.0, "boot")


def asked(*events: str, alive: bool = False, report: str = "Running", driver: str = "process", phase: str = "Ready",
) -> list[Suspicion]:  # fmt: skip
    """What is suspicious when the joblet has written these records and reported that."""
    story = Past()
    session = replace(past.live(cpu=4), driver=driver)
    story.commit({keys.target_status("eu"): past.target_status(phase), keys.live("eu"): session})
    story.commit({past.place("A"): past.fulfilment("A")})
    if report:
        story.commit({keys.observed("eu", "A"): past.observed("A", report)})
    present = story.told_to(Present())
    question = UnnoticedDeaths([line(event) for event in events], lambda record: alive)
    looks = [question.suspect(present, subject) for subject in question.subjects(present)]
    return [suspicion for suspicion in looks if suspicion is not None]


def test_an_attempt_whose_process_is_gone_but_which_is_reported_as_running_is_found() -> None:
    (suspicion,) = asked("started")
    assert suspicion.key == past.place("A")
    assert "the process of render/0 is gone and no end is on record" in suspicion.why


@pytest.mark.parametrize("report", ["Succeeded", ""])
def test_an_end_that_was_reported_and_a_start_that_was_not_are_no_business_of_this(report: str) -> None:
    assert asked("started", report=report) == []


def test_an_attempt_that_lives_or_whose_end_is_on_record_is_in_order() -> None:
    assert asked("started", alive=True) == []
    assert asked("started", "ended") == []
    assert asked() == []


@pytest.mark.parametrize("other", [{"driver": "simulated"}, {"driver": "kubernetes"}, {"phase": "Suspect"}])
def test_only_processes_of_a_ready_target_can_be_looked_at(other: dict[str, str]) -> None:
    assert asked("started", **other) == []  # type: ignore[arg-type]
