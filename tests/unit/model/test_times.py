"""Times: one spelling out, strictness in."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controlplane.model import times
from controlplane.model.errors import Invalid

ZONES = st.integers(-23 * 60, 23 * 60).map(lambda minutes: timezone(timedelta(minutes=minutes)))
MOMENTS = st.datetimes(datetime(1970, 1, 2), datetime(9000, 1, 1), timezones=ZONES)  # noqa: DTZ001


@given(MOMENTS)
def test_a_shown_time_reads_back_to_the_millisecond(moment: datetime) -> None:
    back = times.parse(times.show(moment), "created")
    assert timedelta(0) <= moment - back < timedelta(milliseconds=1)
    assert back.tzinfo is UTC


@given(MOMENTS, MOMENTS)
def test_shown_times_sort_as_the_moments_do(one: datetime, other: datetime) -> None:
    if abs(one - other) >= timedelta(milliseconds=1):
        assert (times.show(one) < times.show(other)) == (one < other)


@pytest.mark.parametrize(
    "text",
    ["", "tomorrow", "2026-12-01", "2026-12-01T00:00:00", "2026-13-01T00:00:00Z",
     "0001-01-01T00:00:00+23:59", "9999-12-31T23:59:59-23:59"],
)  # fmt: skip
def test_what_is_no_moment_is_refused_with_its_field(text: str) -> None:
    with pytest.raises(Invalid) as refusal:
        times.parse(text, "not_before")
    assert refusal.value.field == "not_before"
