"""How long to wait before the next try."""

from __future__ import annotations

import random

from controlplane.joblet.drivers.kubernetes.api import Answered
from controlplane.joblet.drivers.kubernetes.patience import MOST_SECONDS, Patience


def test_it_waits_longer_each_time_up_to_a_bound_and_anew_after_a_success() -> None:
    patience = Patience(random.Random(1))
    pauses = [patience.failure() for _ in range(12)]
    assert pauses[0] <= 0.1
    assert pauses[6] > 4 * pauses[0]
    assert max(pauses) <= MOST_SECONDS
    patience.success()
    assert patience.failure() <= 0.1


def test_two_of_them_do_not_wait_in_step() -> None:
    assert Patience(random.Random(1)).failure() != Patience(random.Random(2)).failure()


def test_it_never_waits_less_than_the_api_asks_for() -> None:
    asked = Answered(429, "TooManyRequests", "", retry_after=7.0)
    assert all(Patience(random.Random(seed)).failure(asked) >= 7.0 for seed in range(20))
