"""Which reports are stored: the session, what is desired and what was stored before decide, in etcd itself."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from controlplane.apiserver.joblets.report_rules import MAX_ARTEFACT, MAX_MESSAGE
from controlplane.model import texts
from controlplane.model.errors import Invalid
from controlplane.store import codec, keys
from controlplane.wire.v1.joblets_pb2 import JobletMessage, Report
from tests.component.joblet_sessions.stage import PATIENCE_SECONDS, Api, Stage, a_report


async def test_a_report_is_stored_and_answered_with_its_revision(stage: Stage, api: Api) -> None:
    fulfilment = await api.desire()
    talk = await stage.a_joblet(api)
    ack = await talk.report(fulfilment, "Starting", 0, artefacts=["http://a.example/log"])
    found = await api.inventory(fulfilment)
    assert found is not None
    revision, observed = found
    assert (ack.code, ack.observed_revision, ack.revision) == ("", revision, revision)
    assert (observed.phase, observed.session, observed.report) == ("Starting", talk.session, 1)
    assert observed.tasks[0].artefacts == ("http://a.example/log",)


async def test_reports_follow_each_other_on_the_acknowledged_revision(stage: Stage, api: Api) -> None:
    fulfilment = await api.desire()
    talk = await stage.a_joblet(api)
    base = 0
    for number, phase in enumerate(("Starting", "Running", "Succeeded"), start=1):
        ack = await talk.report(fulfilment, phase, base, report=number)
        assert ack.code == ""
        base = ack.observed_revision
    found = await api.inventory(fulfilment)
    assert found is not None
    assert found[1].phase == "Succeeded"


async def test_a_report_on_another_base_is_a_conflict_that_shows_what_is_stored(stage: Stage, api: Api) -> None:
    fulfilment = await api.desire()
    talk = await stage.a_joblet(api)
    stored = await talk.report(fulfilment, "Running", 0, report=1)
    ack = await talk.report(fulfilment, "Succeeded", 0, report=2)
    assert (ack.code, ack.observed_revision) == ("Conflict", stored.observed_revision)
    assert (ack.stored.phase, ack.stored.report, ack.stored.session) == ("Running", 1, talk.session)
    found = await api.inventory(fulfilment)
    assert found is not None
    assert found[1].phase == "Running"


async def test_a_report_that_arrives_late_through_another_replica_is_refused(stage: Stage, api: Api) -> None:
    fulfilment = await api.desire()
    old = await stage.a_joblet(api)
    started = await old.report(fulfilment, "Starting", 0, report=1)
    new = await stage.a_joblet(await stage.an_api(), session=old.session)
    ended = await new.report(fulfilment, "Succeeded", started.observed_revision, report=3)
    assert ended.code == ""
    late = await old.report(fulfilment, "Running", started.observed_revision, report=2)
    assert (late.code, late.stored.phase) == ("Conflict", "Succeeded")
    found = await api.inventory(fulfilment)
    assert found is not None
    assert found[1].phase == "Succeeded"


async def test_a_report_of_an_old_session_is_refused_by_etcd(stage: Stage, api: Api) -> None:
    """The old session's replica has not heard that it is over, so that only etcd can refuse."""
    fulfilment = await api.desire()
    old = await stage.a_joblet(api, instance="life-1")
    await api.fall_behind()
    new = await stage.a_joblet(await stage.an_api(), instance="life-2")
    late = await old.report(fulfilment, "Starting", 0)
    assert late.code == "StaleAttempt"
    assert new.session in late.message
    assert await api.inventory(fulfilment) is None
    assert (await new.report(fulfilment, "Starting", 0)).code == ""


async def test_a_report_after_the_session_ran_out_is_refused_by_etcd(stage: Stage, api: Api) -> None:
    fulfilment = await api.desire()
    talk = await stage.a_joblet(api)
    await api.fall_behind()
    await api.store.revoke(int(talk.session, 16))
    assert (await talk.report(fulfilment, "Starting", 0)).code == "StaleAttempt"
    assert await api.inventory(fulfilment) is None


async def test_a_report_that_names_another_session_is_refused(stage: Stage, api: Api) -> None:
    fulfilment = await api.desire()
    talk = await stage.a_joblet(api)
    assert (await talk.report(fulfilment, "Starting", 0, session="abc")).code == "StaleAttempt"
    assert await api.inventory(fulfilment) is None


async def test_a_report_of_a_withdrawn_fulfilment_is_not_found(stage: Stage, api: Api) -> None:
    fulfilment = await api.desire()
    talk = await stage.a_joblet(api)
    ack = await talk.report(fulfilment, "Starting", 0, report=1)
    await api.withdraw(fulfilment)
    late = await talk.report(fulfilment, "Running", ack.observed_revision, report=2)
    assert late.code == "NotFound"
    found = await api.inventory(fulfilment)
    assert found is not None
    assert found[1].phase == "Starting"


async def test_a_withdrawal_that_the_replica_has_not_heard_of_is_seen_by_etcd(stage: Stage, api: Api) -> None:
    fulfilment = await api.desire()
    talk = await stage.a_joblet(api)
    await api.fall_behind()
    await api.withdraw(fulfilment)
    assert (await talk.report(fulfilment, "Starting", 0)).code == "NotFound"
    assert await api.inventory(fulfilment) is None


async def test_a_placement_that_the_replica_has_not_heard_of_can_be_reported(stage: Stage, api: Api) -> None:
    talk = await stage.a_joblet(api)
    await api.fall_behind()
    fulfilment = await api.desire()
    assert (await talk.report(fulfilment, "Starting", 0)).code == ""


async def test_a_report_of_an_old_attempt_is_refused(stage: Stage, api: Api) -> None:
    fulfilment = await api.desire()
    talk = await stage.a_joblet(api)
    assert (await talk.report(fulfilment, "Starting", 0, attempt=2)).code == "StaleAttempt"
    assert await api.inventory(fulfilment) is None


@pytest.mark.parametrize(("before", "after"), [("Succeeded", "Failed"), ("Failed", "Running"), ("Running", "Starting")])
async def test_a_phase_never_goes_back(stage: Stage, api: Api, before: str, after: str) -> None:
    fulfilment = await api.desire()
    talk = await stage.a_joblet(api)
    stored = await talk.report(fulfilment, before, 0, report=1)
    ack = await talk.report(fulfilment, after, stored.observed_revision, report=2)
    assert ack.code == "IllegalTransition"
    found = await api.inventory(fulfilment)
    assert found is not None
    assert found[1].phase == before


@pytest.mark.parametrize(
    ("phase", "fields"),
    [
        ("Flying", {}),
        ("Running", {"report": 0}),
        ("Running", {"target": "elsewhere"}),
        ("Running", {"artefacts": ["u" * (MAX_ARTEFACT + 1)]}),
        ("Running", {"artefacts": ["u"] * 1000}),
        ("Failed", {"exit_code": 2**40}),
        ("Failed", {"exit_code": 10**30}),
        ("Running", {"percent": 10**30}),
        ("Running", {"started": "9999-12-31T23:59:59Z"}),
        ("Running", {"finished": "x" * 100_000}),
    ],
)
async def test_a_malformed_report_is_invalid_and_stores_nothing(
    stage: Stage, api: Api, phase: str, fields: dict[str, Any]
) -> None:
    fulfilment = await api.desire()
    talk = await stage.a_joblet(api)
    ack = await talk.report(fulfilment, phase, 0, **fields)
    assert ack.code == "Invalid"
    assert await api.inventory(fulfilment) is None
    # The stream goes on: one report is refused, not its joblet.
    assert (await talk.report(fulfilment, "Starting", 0)).code == ""


async def test_a_long_message_is_cut_and_the_end_is_stored(stage: Stage, api: Api) -> None:
    fulfilment = await api.desire()
    talk = await stage.a_joblet(api)
    assert (await talk.report(fulfilment, "Failed", 0, message="m" * 100_000)).code == ""
    found = await api.inventory(fulfilment)
    assert found is not None
    assert (found[1].phase, found[1].tasks[0].message) == ("Failed", "m" * (MAX_MESSAGE - 1) + texts.MARK)


async def test_reports_go_on_after_one_of_a_value_that_cannot_be_read(stage: Stage, api: Api) -> None:
    broken, sound = await api.desire(), await api.desire()
    await api.put(keys.desired(broken.target, broken.id), b"not json")
    talk = await stage.a_joblet(api)
    assert (await talk.report(broken, "Starting", 0)).code == "Broken"
    assert (await talk.report(sound, "Starting", 0)).code == ""


async def test_a_stored_report_that_cannot_be_read_is_written_over(stage: Stage, api: Api) -> None:
    fulfilment = await api.desire()
    poison = await api.put(keys.observed(fulfilment.target, fulfilment.id), b"not json")
    talk = await stage.a_joblet(api)
    conflict = await talk.report(fulfilment, "Running", 0, report=1)
    assert (conflict.code, conflict.observed_revision) == ("Conflict", poison)
    assert (await talk.report(fulfilment, "Running", poison, report=2)).code == ""


async def test_many_reports_travel_in_few_transactions(stage: Stage, api: Api) -> None:
    fulfilments = [await api.desire() for _ in range(300)]
    talk = await stage.a_joblet(api)
    await talk.synced()
    await talk.send(*(a_report(fulfilment, "Starting", 0, session=talk.session) for fulfilment in fulfilments))
    acks = [await talk.until("report_ack") for _ in fulfilments]
    assert {ack.code for ack in acks} == {""}
    assert {ack.id for ack in acks} == {fulfilment.id for fulfilment in fulfilments}
    assert len({ack.revision for ack in acks}) < len(fulfilments) / 10


async def test_two_reports_of_one_fulfilment_at_once_are_stored_once(stage: Stage, api: Api) -> None:
    fulfilment = await api.desire()
    talk = await stage.a_joblet(api)
    await talk.synced()
    await talk.send(*(a_report(fulfilment, "Starting", 0, session=talk.session, report=n) for n in (1, 2)))
    codes = sorted([(await talk.until("report_ack")).code for _ in range(2)])
    assert codes == ["", "Conflict"]


async def test_a_report_without_an_answer_from_etcd_may_be_repeated(stage: Stage, api: Api) -> None:
    fulfilment = await api.desire()
    talk = await stage.a_joblet(api)
    stage.etcd.pause()
    try:
        lost = await talk.report(fulfilment, "Starting", 0, report=1)
    finally:
        stage.etcd.resume()
    assert lost.code in ("Unavailable", "OutcomeUnknown")
    async with asyncio.timeout(PATIENCE_SECONDS):
        while (again := await talk.report(fulfilment, "Starting", 0, report=2)).code in (
            "Unavailable",
            "OutcomeUnknown",
        ):
            pass
    assert again.code in ("", "Conflict")
    found = await api.inventory(fulfilment)
    assert found is not None
    assert found[0] == again.observed_revision


async def test_the_value_in_etcd_is_what_was_reported(stage: Stage, api: Api) -> None:
    fulfilment = await api.desire()
    talk = await stage.a_joblet(api)
    await talk.report(fulfilment, "Starting", 0)
    stored = await api.store.get(keys.observed(fulfilment.target, fulfilment.id))
    found = await api.inventory(fulfilment)
    assert stored is not None
    assert found is not None
    assert stored.value.startswith(b'{"kind":"Observed"')
    assert (stored.value, stored.lease) == (codec.encode(found[1]), 0)


async def test_a_joblet_that_sends_junk_for_a_report_is_sent_away(stage: Stage, api: Api) -> None:
    talk = await stage.a_joblet(api)
    await talk.send(JobletMessage(report=Report(observed=b'{"kind":"Observed"')))
    assert isinstance(await talk.refusal(), Invalid)
