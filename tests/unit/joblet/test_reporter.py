"""The chain of reports: one at a time, never taken for stored or lost without proof."""

from __future__ import annotations

import msgspec
import pytest

from controlplane.joblet.reconcile import FulfilmentDecision, observed_task
from controlplane.joblet.reporter import MOST_BYTES, Chain, ReportOutcome, fit
from controlplane.model.fulfilment import Observed, TaskRef

ONE = TaskRef(job="render", index=0, attempt=1)
ME = ("F", "T", "S")


def decision(phase: str) -> FulfilmentDecision:
    return FulfilmentDecision(phase, (observed_task(ONE, phase),))


def sent(chain: Chain, phase: str) -> Observed:
    report = chain.next(ME, decision(phase), "now")
    assert report is not None
    return report


def test_reports_are_numbered_and_each_waits_for_the_answer_to_the_one_before() -> None:
    chain = Chain()
    first = sent(chain, "Starting")
    assert (first.report, chain.base) == (1, 0)
    assert chain.next(ME, decision("Running"), "now") is None
    assert chain.acknowledge(1, "", None, 7) is ReportOutcome.GO_ON
    second = sent(chain, "Running")
    assert (second.report, chain.base) == (2, 7)


def test_what_is_stored_already_is_not_sent_again() -> None:
    chain = Chain()
    sent(chain, "Starting")
    chain.acknowledge(1, "", None, 7)
    assert chain.next(ME, decision("Starting"), "later") is None


def test_a_running_that_is_overtaken_by_the_end_is_not_sent() -> None:
    chain = Chain()
    sent(chain, "Starting")
    assert chain.next(ME, decision("Running"), "now") is None
    chain.acknowledge(1, "", None, 7)
    assert sent(chain, "Succeeded").phase == "Succeeded"


def test_an_answer_to_another_report_is_ignored() -> None:
    chain = Chain()
    sent(chain, "Starting")
    assert chain.acknowledge(9, "", None, 7) is ReportOutcome.IGNORE
    assert chain.outstanding is not None


def test_a_conflict_with_its_own_report_means_that_it_was_stored() -> None:
    chain = Chain()
    report = sent(chain, "Starting")
    assert chain.acknowledge(1, "Conflict", report, 7) is ReportOutcome.GO_ON
    assert (chain.stored, chain.base) == (report, 7)
    assert chain.next(ME, decision("Starting"), "now") is None


def test_a_conflict_with_another_report_makes_the_newest_go_on_top_of_it() -> None:
    chain = Chain()
    report = sent(chain, "Running")
    other = msgspec.structs.replace(report, report=5, session="before", phase="Starting")
    assert chain.acknowledge(1, "Conflict", other, 9) is ReportOutcome.GO_ON
    again = sent(chain, "Running")
    assert (again.report, chain.base) == (6, 9)


def test_a_conflict_with_nothing_starts_from_nothing() -> None:
    chain = Chain()
    sent(chain, "Starting")
    chain.acknowledge(1, "", None, 7)
    sent(chain, "Running")
    assert chain.acknowledge(2, "Conflict", None, 0) is ReportOutcome.GO_ON
    assert (chain.stored, chain.base) == (None, 0)


@pytest.mark.parametrize("code", ["Unavailable", "OutcomeUnknown", "Invalid"])
def test_a_report_that_was_not_confirmed_is_sent_again_under_a_new_number(code: str) -> None:
    chain = Chain()
    sent(chain, "Starting")
    assert chain.acknowledge(1, code, None, 0) is ReportOutcome.AGAIN_LATER
    assert chain.failures == 1
    assert sent(chain, "Starting").report == 2


@pytest.mark.parametrize(
    ("code", "outcome"), [("NotFound", ReportOutcome.GONE), ("StaleAttempt", ReportOutcome.STALE_SESSION)]
)
def test_a_refusal_tells_what_to_do(code: str, outcome: ReportOutcome) -> None:
    chain = Chain()
    sent(chain, "Starting")
    assert chain.acknowledge(1, code, None, 0) is outcome


def test_a_restarted_joblet_goes_on_with_the_stored_chain() -> None:
    chain = Chain()
    before = Observed(
        id="F", target="T", session="before", report=4, phase="Running", tasks=(observed_task(ONE, "Running"),)
    )
    chain.learn(before, 30)
    report = sent(chain, "Succeeded")
    assert (report.report, chain.base) == (5, 30)


def test_older_news_do_not_overwrite_newer_ones() -> None:
    chain = Chain()
    first = sent(chain, "Starting")
    chain.acknowledge(1, "", None, 7)
    chain.learn(None, 0)
    assert (chain.stored, chain.base) == (first, 7)


def test_a_report_that_is_too_big_loses_its_details_first() -> None:
    big = msgspec.structs.replace(
        observed_task(ONE, "Failed"), message="m" * 200, artefacts=("s3://" + "a" * 2000,) * 90
    )
    fitted = fit(FulfilmentDecision("Failed", (big, big)))
    assert [len(task.artefacts) for task in fitted.tasks] == [90, 0]
    assert [task.message for task in fitted.tasks] == ["", ""]
    assert len(msgspec.json.encode(fitted.tasks)) <= MOST_BYTES + 1000
    assert fit(FulfilmentDecision("Failed", (big,))).tasks == (big,)
