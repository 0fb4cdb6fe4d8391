"""A subject may only hurt itself: its requests, streams and bytes are bounded, and ordinary use meets no limit."""

from __future__ import annotations

import math
from contextlib import ExitStack

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controlplane.apiserver.edge.subject_limits import SubjectLimits
from controlplane.model.errors import LimitExceeded
from tests.clock import ManualClock

# Seconds between calls: bursts, even use, and pauses.
PAUSES = st.lists(st.sampled_from([0.0, 0.0, 0.001, 0.01, 0.3, 2.0]) | st.floats(0, 3), min_size=1, max_size=120)
RATES = st.sampled_from([0.5, 1.0, 3.0, 7.0, 10.0, 1000.0]) | st.floats(0.1, 5000)


def wait_of(limits: SubjectLimits, subject: str = "ada") -> float:
    """Asks to be admitted: 0, or the seconds after which to ask again."""
    try:
        limits.admit(subject)
    except LimitExceeded as refusal:
        return refusal.retry_after_seconds or math.inf
    return 0.0


def admitted(limits: SubjectLimits, subject: str = "ada") -> bool:
    return wait_of(limits, subject) == 0


def taken(limits: SubjectLimits, byte_count: int, subject: str = "ada") -> bool:
    try:
        limits.received(subject, byte_count)
    except LimitExceeded:
        return False
    return True


@given(pauses=PAUSES, rate=RATES, burst=st.integers(1, 20))
def test_within_any_time_no_more_requests_are_admitted_than_burst_and_rate_allow(
    pauses: list[float], rate: float, burst: int
) -> None:
    clock = ManualClock()
    limits = SubjectLimits(clock, rate_per_second=rate, burst=burst)
    moments: list[float] = []
    for pause in pauses:
        clock.pass_seconds(pause)
        if admitted(limits):
            moments.append(clock.monotonic())
    for first in range(len(moments)):
        for last in range(first, len(moments)):
            # The clock of the test counts in floats, which are exact to some picoseconds.
            seconds = moments[last] - moments[first] + 1e-9
            assert last - first + 1 <= burst + rate * seconds


@given(pauses=PAUSES, rate=RATES, burst=st.integers(1, 20))
def test_a_refused_subject_is_admitted_when_it_waited_as_told(pauses: list[float], rate: float, burst: int) -> None:
    clock = ManualClock()
    limits = SubjectLimits(clock, rate_per_second=rate, burst=burst)
    for pause in pauses:
        clock.pass_seconds(pause)
        seconds = wait_of(limits)
        if seconds:
            assert seconds <= 1 / rate + 0.002
            clock.pass_seconds(seconds)
            limits.admit("ada")


@given(
    messages=st.lists(st.tuples(st.sampled_from([0.0, 0.0, 0.1, 1.0, 30.0]), st.integers(0, 5000)), max_size=60),
    rate=st.sampled_from([1.0, 333.0, 1000.0, 1e6]),
)
def test_within_any_time_no_more_bytes_are_taken_than_a_second_and_the_rate_and_one_message_allow(
    messages: list[tuple[float, int]], rate: float
) -> None:
    clock = ManualClock()
    limits = SubjectLimits(clock, bytes_per_second=rate)
    passed: list[tuple[float, int]] = []
    for pause, byte_count in messages:
        clock.pass_seconds(pause)
        if taken(limits, byte_count):
            passed.append((clock.monotonic(), byte_count))
    for first in range(len(passed)):
        for last in range(first, len(passed)):
            seconds = passed[last][0] - passed[first][0] + 1e-9
            before = sum(byte_count for _, byte_count in passed[first:last])
            assert before <= rate * (1 + seconds)


def test_a_burst_is_admitted_at_once_and_the_next_request_hears_when_to_come_again() -> None:
    clock = ManualClock()
    limits = SubjectLimits(clock, rate_per_second=10, burst=5)
    assert [admitted(limits) for _ in range(7)] == [True] * 5 + [False] * 2
    assert wait_of(limits) == pytest.approx(0.1, abs=0.002)
    clock.pass_seconds(0.101)
    assert [admitted(limits) for _ in range(2)] == [True, False]
    clock.pass_seconds(60)
    assert sum(admitted(limits) for _ in range(100)) == 5


def test_refusals_use_nothing_up() -> None:
    clock = ManualClock()
    limits = SubjectLimits(clock, rate_per_second=10, burst=1)
    assert admitted(limits)
    assert not any(admitted(limits) for _ in range(1000))
    clock.pass_seconds(0.1)
    assert admitted(limits)


def test_subjects_share_no_allowance() -> None:
    limits = SubjectLimits(ManualClock(), rate_per_second=1, burst=1, most_streams=1, bytes_per_second=1)
    with limits.stream("eve"):
        limits.admit("eve")
        limits.received("eve", 1000)
        assert not admitted(limits, "eve")
        assert not taken(limits, 1, "eve")
        limits.admit("ada")
        limits.received("ada", 1000)
        with limits.stream("ada"):
            pass


def test_streams_are_counted_until_their_end() -> None:
    limits = SubjectLimits(ManualClock(), most_streams=3)
    with ExitStack() as streams:
        for _ in range(3):
            streams.enter_context(limits.stream("ada"))
        for _ in range(2):
            with pytest.raises(LimitExceeded) as refusal, limits.stream("ada"):
                pass
        assert refusal.value.retry_after_seconds is None
    with pytest.raises(ZeroDivisionError), limits.stream("ada"):
        raise ZeroDivisionError
    with ExitStack() as streams:
        for _ in range(3):
            streams.enter_context(limits.stream("ada"))


def test_a_message_above_a_second_s_worth_passes_and_the_next_messages_pay() -> None:
    clock = ManualClock()
    limits = SubjectLimits(clock, bytes_per_second=1000)
    limits.received("ada", 5000)
    with pytest.raises(LimitExceeded) as refusal:
        limits.received("ada", 1)
    assert refusal.value.retry_after_seconds == pytest.approx(4, abs=0.002)
    clock.pass_seconds(3.9)
    assert not taken(limits, 1)
    clock.pass_seconds(0.101)
    assert taken(limits, 1)


def test_ordinary_use_meets_no_limit() -> None:
    """A client that submits orders one by one, as fast as was measured, and twice that."""
    clock = ManualClock()
    limits = SubjectLimits(clock)
    with ExitStack() as streams:
        for _ in range(500):
            streams.enter_context(limits.stream("ada"))
        for _ in range(10_000):
            clock.pass_seconds(0.0005)
            limits.admit("ada")
            limits.received("ada", 16 << 10)


def test_idle_subjects_are_forgotten() -> None:
    clock = ManualClock()
    limits = SubjectLimits(clock)
    for number in range(20_000):
        clock.pass_seconds(0.001)
        limits.admit(f"subject-{number}")
        limits.received(f"subject-{number}", 1000)
        assert len(limits) < 10


def test_a_crowd_of_subjects_is_forgotten_as_others_come() -> None:
    clock = ManualClock()
    limits = SubjectLimits(clock)
    for number in range(5000):
        limits.admit(f"subject-{number}")
    assert len(limits) == 5000
    clock.pass_seconds(1)
    for number in range(5000):
        clock.pass_seconds(0.001)
        limits.admit(f"later-{number}")
    assert len(limits) < 10


def test_subjects_in_debt_or_with_open_streams_are_remembered() -> None:
    clock = ManualClock()
    limits = SubjectLimits(clock, rate_per_second=1, burst=1, most_streams=1, bytes_per_second=1)
    with limits.stream("streams"):
        limits.received("bytes", 1_000_000)
        limits.admit("requests")
        for number in range(1000):
            with limits.stream(f"subject-{number}"):
                pass
        assert not admitted(limits, "requests")
        assert not taken(limits, 1, "bytes")
        with pytest.raises(LimitExceeded), limits.stream("streams"):
            pass
        assert len(limits) < 10
