"""How long to wait before the next try."""

from __future__ import annotations

import random

import pytest

from controlplane.aio.backoff import Backoff, Retries, doubling


def test_a_doubling_schedule_ends_with_its_bound() -> None:
    assert doubling(0.5, 3.0).delays == (0.5, 1.0, 2.0, 3.0)
    assert doubling(0.5, 4.0).delays == (0.5, 1.0, 2.0, 4.0)
    assert doubling(2.0, 2.0).delays == (2.0,)


def test_the_last_delay_holds_for_all_later_failures() -> None:
    backoff = Backoff((0.5, 1.0, 30.0))
    assert [backoff.after(failures) for failures in (1, 2, 3, 4, 400)] == [0.5, 1.0, 30.0, 30.0, 30.0]


@pytest.mark.parametrize(("draw", "expected"), [(0.0, 5.0), (0.5, 7.5), (1.0, 10.0)])
def test_jitter_only_shortens_a_delay(draw: float, expected: float) -> None:
    assert Backoff((10.0,), jitter=0.5).after(1, draw) == expected
    assert Backoff((10.0,)).after(1, draw) == 10.0


def test_retries_wait_longer_each_time_up_to_a_bound_and_anew_after_a_success() -> None:
    retries = Retries(doubling(0.1, 10.0, jitter=0.5), random.Random(1).random)
    pauses = [retries.failed() for _ in range(12)]
    assert pauses[0] <= 0.1
    assert pauses[6] > 4 * pauses[0]
    assert max(pauses) <= 10.0
    retries.succeeded()
    assert retries.failed() <= 0.1


def test_two_of_them_do_not_wait_in_step() -> None:
    backoff = doubling(0.1, 10.0, jitter=0.5)
    first, second = (Retries(backoff, random.Random(seed).random).failed() for seed in (1, 2))
    assert first != second
