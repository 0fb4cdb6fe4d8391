"""Availability windows, compared with looking at a clock minute by minute."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from controlplane.model import windows
from controlplane.model.target import Window
from controlplane.model.windows import DAYS, is_open, next_change, next_opening

MINUTE = timedelta(minutes=1)
ZONES = ["UTC", "Europe/Berlin", "America/New_York", "America/Santiago", "Australia/Lord_Howe", "Asia/Kolkata"]
# Around these the clocks of one of the zones are changed, or a year ends.
TURNS = [datetime(2026, *day, tzinfo=UTC) for day in ((3, 8), (3, 29), (4, 5), (9, 6), (10, 4), (10, 25), (12, 31))]


def at(text: str) -> datetime:
    return datetime.fromisoformat(text)


def window(begin: str, end: str, *days: str, tz: str = "UTC") -> Window:
    return Window(days=days, from_=begin, to=end, tz=tz)


def shown_by_a_clock(found: Window, now: datetime) -> bool:
    """The same question, asked of the texts as a person would read them off."""
    local = now.astimezone(ZoneInfo(found.tz))
    clock = local.strftime("%H:%M")
    today, yesterday = DAYS[local.weekday()], DAYS[local.weekday() - 1]
    days = found.days or DAYS
    if found.from_ < found.to:
        return today in days and found.from_ <= clock < found.to
    return (today in days and clock >= found.from_) or (yesterday in days and clock < found.to)


clocks = st.builds(
    lambda hour, minute: f"{hour:02}:{minute:02}", st.integers(0, 23), st.sampled_from([0, 1, 15, 30, 59])
)
some_windows = st.lists(
    st.builds(
        lambda begin, end, days, tz: window(begin, end, *days, tz=tz),
        clocks,
        clocks | st.just("24:00"),
        st.lists(st.sampled_from(DAYS), unique=True, max_size=7),
        st.sampled_from(ZONES),
    ),
    min_size=1,
    max_size=4,
)
moments = st.builds(
    lambda day, minutes: day + minutes * MINUTE, st.sampled_from(TURNS), st.integers(-2 * 24 * 60, 2 * 24 * 60)
)


@settings(max_examples=60, deadline=None)
@given(some_windows, moments)
def test_what_is_open_and_until_when_is_what_a_clock_shows_minute_by_minute(
    windows: list[Window], now: datetime
) -> None:
    brute = [any(shown_by_a_clock(one, now + step * MINUTE) for one in windows) for step in range(36 * 60)]
    assert is_open(windows, now) == brute[0]
    change = next_change(windows, now)
    expected = next((step for step, opened in enumerate(brute) if opened != brute[0]), None)
    if expected is not None:
        assert change == now + expected * MINUTE
    else:
        assert change is None or change >= now + 36 * 60 * MINUTE


@settings(max_examples=100, deadline=None)
@given(some_windows, moments, st.floats(0, 0.999))
def test_nothing_changes_before_the_next_change_and_something_does_then(
    windows: list[Window], now: datetime, share: float
) -> None:
    change = next_change(windows, now)
    end = change or now + timedelta(days=14)
    between = now + (end - now) * share
    assert any(shown_by_a_clock(one, between) for one in windows) == is_open(windows, now)
    assert is_open(windows, between) == is_open(windows, now)
    if change is not None:
        assert change > now
        assert is_open(windows, change) != is_open(windows, now)
        assert next_opening(windows, now) == (now if is_open(windows, now) else change)


def test_a_target_without_windows_is_always_open() -> None:
    now = at("2026-03-02T10:00:00Z")
    assert is_open((), now)
    assert (next_change((), now), next_opening((), now)) == (None, now)


def test_a_window_over_midnight_belongs_to_the_day_it_began_on() -> None:
    friday_night = [window("22:00", "02:00", "fri")]
    for moment in ("06T01:00", "06T21:59", "07T02:00", "07T23:00"):
        assert not is_open(friday_night, at(f"2026-03-{moment}:00Z"))
    for moment in ("06T22:00", "07T01:59"):
        assert is_open(friday_night, at(f"2026-03-{moment}:00Z"))


def test_a_window_over_the_end_of_the_week_goes_on_into_monday() -> None:
    sunday_night = [window("22:00", "02:00", "sun")]
    assert is_open(sunday_night, at("2026-03-02T01:59:00Z"))
    assert next_change(sunday_night, at("2026-03-01T23:00:00Z")) == at("2026-03-02T02:00:00Z")


@pytest.mark.parametrize(("begin", "end"), [("08:00", "08:00"), ("00:00", "24:00"), ("00:00", "00:00")])
def test_a_whole_day_every_day_is_always(begin: str, end: str) -> None:
    assert is_open([window(begin, end)], at("2026-03-02T07:59:00Z"))
    assert next_change([window(begin, end)], at("2026-03-02T07:59:00Z")) is None


def test_equal_times_are_a_whole_day_from_then_on() -> None:
    monday = [window("08:00", "08:00", "mon")]
    assert not is_open(monday, at("2026-03-02T07:59:00Z"))
    assert is_open(monday, at("2026-03-03T07:59:00Z"))
    assert next_change(monday, at("2026-03-02T08:00:00Z")) == at("2026-03-03T08:00:00Z")


def test_windows_follow_the_clocks_of_their_zone() -> None:
    office = [window("08:00", "18:00", tz="Europe/Berlin")]
    assert next_opening(office, at("2026-03-28T20:00:00Z")) == at("2026-03-29T06:00:00Z")
    assert next_opening(office, at("2026-03-27T20:00:00Z")) == at("2026-03-28T07:00:00Z")


def test_a_window_in_the_hour_that_is_skipped_waits_for_the_week_after() -> None:
    skipped = [window("02:15", "02:45", "sun", tz="Europe/Berlin")]
    assert next_opening(skipped, at("2026-03-23T00:00:00Z")) == at("2026-04-05T00:15:00Z")


def test_a_window_that_ends_in_the_skipped_hour_closes_when_the_clocks_are_changed() -> None:
    ends = [window("01:30", "02:30", tz="Europe/Berlin")]
    assert next_change(ends, at("2026-03-29T00:45:00Z")) == at("2026-03-29T01:00:00Z")


def test_a_moment_may_come_in_any_zone_and_with_seconds() -> None:
    office = [window("08:00", "18:00")]
    assert is_open(office, at("2026-03-02T09:59:59.900000+02:00")) is False
    assert is_open(office, at("2026-03-02T10:00:00.100000+02:00")) is True
    assert next_change(office, at("2026-03-02T09:59:59.900000+02:00")) == at("2026-03-02T08:00:00Z")


@pytest.mark.parametrize(
    "broken", [window("8", "18:00"), window("08:00", "18:00", tz="Mars/Base"), window("08:00", "18:00", "monday")]
)
def test_a_window_that_nobody_can_have_admitted_never_opens(broken: Window) -> None:
    now = at("2026-03-02T10:00:00Z")
    assert not is_open([broken], now)
    assert next_opening([broken], now) is None
    assert is_open([broken, window("08:00", "18:00")], now)


def test_a_text_that_is_too_long_for_a_zone_is_neither_looked_up_nor_kept() -> None:
    before = windows._zone.cache_info()
    assert windows.zone("x" * 65) is None
    assert windows.zone("Europe/" + "Berlin" * 100_000) is None
    assert windows._zone.cache_info() == before
