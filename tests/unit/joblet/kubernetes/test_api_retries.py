"""How long to wait before the cluster's API is asked again."""

from __future__ import annotations

import random

from controlplane.joblet.drivers.kubernetes.api import Answered, ApiRetries


def test_a_pause_is_never_shorter_than_the_api_asks_for() -> None:
    asked = Answered(429, "TooManyRequests", "", retry_after=7.0)
    assert all(ApiRetries(random.Random(seed).random).failed(asked) >= 7.0 for seed in range(20))


def test_pauses_grow_up_to_ten_seconds_and_begin_anew_after_a_success() -> None:
    retries = ApiRetries(lambda: 1.0)
    assert [retries.failed() for _ in range(9)] == [0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 10.0, 10.0]
    retries.succeeded()
    assert retries.failed() == 0.1
