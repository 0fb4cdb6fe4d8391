"""When a recurring order runs, also where the clocks change; and what is refused as a schedule."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controlplane.model import identity, schedule, times
from controlplane.model.errors import Invalid
from controlplane.model.schedule import Schedule
from tests.builders import an_identity

TEMPLATE = "01ARZ3NDEKTSV4RRFFQ69G5FAV"


def at(text: str) -> datetime:
    return times.parse(text, "moment")


def runs(cron: str, first: str, last: str, tz: str = "Europe/Berlin") -> list[str]:
    """All of them in between, as clocks in UTC show them."""
    found = schedule.latest(Schedule(cron=cron, tz=tz), at(first), at(last), 1000)
    return [moment.strftime("%d %H:%M:%S") for moment in found]


@pytest.mark.parametrize(
    ("cron", "expected"),
    [
        # On 29 March 2026 clocks in Berlin go from 02:00 to 03:00, which is 01:00 UTC.
        ("30 2 * * *", ["28 01:30:00", "29 01:00:00", "30 00:30:00"]),
        ("0,30 2 * * *", ["28 01:00:00", "28 01:30:00", "29 01:00:00", "30 00:00:00", "30 00:30:00"]),
        ("30 3 * * *", ["28 02:30:00", "29 01:30:00", "30 01:30:00"]),
    ],
)
def test_a_time_that_the_clocks_skip_happens_once_right_after(cron: str, expected: list[str]) -> None:
    assert runs(cron, "2026-03-27T23:30:00Z", "2026-03-30T12:00:00Z") == expected


def test_what_follows_real_time_leaves_out_what_is_skipped() -> None:
    assert runs("*/30 2-3 * * *", "2026-03-29T00:00:00Z", "2026-03-29T06:00:00Z") == ["29 01:00:00", "29 01:30:00"]
    hourly = runs("0 * * * *", "2026-03-28T23:30:00Z", "2026-03-29T03:30:00Z")
    assert hourly == ["29 00:00:00", "29 01:00:00", "29 02:00:00", "29 03:00:00"]


def test_a_time_that_comes_twice_happens_once() -> None:
    # On 25 October 2026 clocks in Berlin go from 03:00 back to 02:00, which is 01:00 UTC.
    assert runs("30 2 * * *", "2026-10-24T12:00:00Z", "2026-10-26T12:00:00Z") == ["25 00:30:00", "26 01:30:00"]


@pytest.mark.parametrize("minutes", range(0, 180, 7))
def test_asked_anywhere_in_the_hour_that_comes_twice_the_next_time_is_never_in_the_past(minutes: int) -> None:
    moment = at("2026-10-24T23:30:00Z") + timedelta(minutes=minutes)
    daily = Schedule(cron="30 2 * * *", tz="Europe/Berlin")
    expected = at("2026-10-25T00:30:00Z") if moment < at("2026-10-25T00:30:00Z") else at("2026-10-26T01:30:00Z")
    assert schedule.next_after(daily, moment) == expected


def test_what_follows_real_time_happens_again_in_the_hour_that_comes_again() -> None:
    found = runs("*/30 * * * *", "2026-10-24T23:59:00Z", "2026-10-25T02:00:00Z")
    assert found == ["25 00:00:00", "25 00:30:00", "25 01:00:00", "25 01:30:00", "25 02:00:00"]


@given(
    cron=st.sampled_from(["* * * * * *", "*/7 * * * *", "15 2 * * *", "0 0 1 * *", "30 1,2,3 * * 0", "0 */5 * * *"]),
    tz=st.sampled_from(["UTC", "Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "America/Sao_Paulo"]),
    start=st.integers(1_767_225_600, 1_798_761_600).map(lambda second: datetime.fromtimestamp(second, UTC)),
    seconds=st.integers(0, 3 * 86_400),
)
def test_looking_back_finds_what_going_forward_step_by_step_finds(
    cron: str, tz: str, start: datetime, seconds: int
) -> None:
    recurring, end, most = Schedule(cron=cron, tz=tz), start + timedelta(seconds=seconds), 20
    found = schedule.latest(recurring, start, end, most)
    assert all(earlier < later for earlier, later in pairwise(found))
    assert all(start < moment <= end for moment in found)
    walked = found[0] if len(found) == most else start
    for moment in found[1:] if len(found) == most else found:
        walked = schedule.next_after(recurring, walked) or end
        assert walked == moment
    following = schedule.next_after(recurring, walked)
    assert following is not None
    assert following > end


def test_a_long_time_with_many_runs_is_not_counted_through() -> None:
    found = schedule.latest(Schedule(cron="* * * * * *"), at("2016-01-01T00:00:00Z"), at("2026-01-01T00:00:00Z"), 3)
    assert [moment.second for moment in found] == [58, 59, 0]


def test_bounds_end_it() -> None:
    daily = Schedule(cron="0 12 * * *", until="2026-01-02T12:00:00Z")
    assert schedule.next_after(daily, at("2026-01-01T13:00:00Z")) == at("2026-01-02T12:00:00Z")
    assert schedule.next_after(daily, at("2026-01-02T12:00:00Z")) is None
    assert len(schedule.latest(daily, at("2026-01-01T00:00:00Z"), at("2026-01-09T00:00:00Z"), 10)) == 2


def test_a_runs_identity_is_its_template_and_its_time_and_nothing_else() -> None:
    moment = at("2026-03-29T01:00:00Z")
    run = schedule.run_identity(TEMPLATE, moment)
    assert run == schedule.run_identity(TEMPLATE, moment)
    assert identity.milliseconds(run) == int(moment.timestamp() * 1000)
    assert run != schedule.run_identity(an_identity(), moment)
    assert run < schedule.run_identity(TEMPLATE, moment + timedelta(seconds=1))


@pytest.mark.parametrize(
    ("bad", "field"),
    [
        (Schedule(), "schedule.cron"),
        (Schedule(cron="* * * *"), "schedule.cron"),
        (Schedule(cron="61 * * * *"), "schedule.cron"),
        (Schedule(cron="*/0 * * * *"), "schedule.cron"),
        (Schedule(cron="@daily"), "schedule.cron"),
        (Schedule(cron="0 0 30 2 *"), "schedule.cron"),
        (Schedule(cron="9" * 5000 + " * * * *"), "schedule.cron"),
        (Schedule(cron="* * * * *", tz="Mars/Olympus"), "schedule.tz"),
        (Schedule(cron="* * * * *", tz=""), "schedule.tz"),
        (Schedule(cron="* * * * *", missed="maybe"), "schedule.missed"),
        (Schedule(cron="* * * * *", overlap="wait"), "schedule.overlap"),
        (Schedule(cron="* * * * *", limit=0), "schedule.limit"),
        (Schedule(cron="* * * * *", until="soon"), "schedule.until"),
    ],
)
def test_what_is_no_schedule_is_refused_with_the_fields_name(bad: Schedule, field: str) -> None:
    with pytest.raises(Invalid) as refused:
        schedule.check(bad)
    assert refused.value.field == field


@pytest.mark.parametrize(
    ("bad", "field"),
    [
        (Schedule(cron="0 0 */29 2 MON#3"), "schedule.cron"),
        (Schedule(cron="* * * * *", until="2025-12-31T00:00:00Z"), "schedule.until"),
        (Schedule(cron="0 0 2 1 *", until="2026-01-01T23:00:00Z"), "schedule.until"),
    ],
)
def test_a_schedule_that_never_fires_is_refused(bad: Schedule, field: str) -> None:
    schedule.check(bad)
    with pytest.raises(Invalid) as refused:
        schedule.check_fires(bad, at("2026-01-01T00:00:00Z"))
    assert refused.value.field == field


@pytest.mark.parametrize(
    ("cron", "seconds"),
    [
        ("* * * * * *", 1),
        ("*/5 * * * * *", 5),
        ("*/10 * * * * *", 10),
        ("0,9 0 3 1 1 *", 9),
        ("3,55 * * * * *", 8),
        ("3,55 */2 * * * *", 52),
        ("55,5 59,0 * * * *", 10),
        ("58,3 59,0 * * * *", 5),
        ("7 * * * * *", 60),
        ("* * * * *", 60),
        ("30 2 * * *", 60),
    ],
)
def test_the_least_time_between_two_runs_follows_from_seconds_and_minutes(cron: str, seconds: int) -> None:
    assert schedule.closest_seconds(cron) == seconds
    if seconds >= schedule.LEAST_SECONDS:
        schedule.check_interval(Schedule(cron=cron))
        return
    with pytest.raises(Invalid) as refused:
        schedule.check_interval(Schedule(cron=cron))
    assert refused.value.field == "schedule.cron"
    assert "10 s" in str(refused.value)
    schedule.check_interval(Schedule(cron=cron, limit=schedule.FEW_RUNS))
    with pytest.raises(Invalid):
        schedule.check_interval(Schedule(cron=cron, limit=schedule.FEW_RUNS + 1))
