"""When a credential is renewed, and what a stored credential allows."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from controlplane.model import credential
from controlplane.model.credential import StoredCredential, seconds_until_renewal

DAY = 86400.0
STORED = StoredCredential(
    targets=("a", "b"), driver="process", id="x", token="t1", renewed=1000.0, renew_after=DAY
)  # fmt: skip


def test_a_week_is_renewed_daily_and_the_former_text_is_good_for_ten_minutes() -> None:
    assert credential.renew_after_seconds(7 * DAY) == DAY
    assert credential.former_seconds(7 * DAY) == 600
    # A short lifetime leaves no text good beyond the next renewal.
    assert credential.former_seconds(14) < credential.renew_after_seconds(14)


@pytest.mark.parametrize(
    ("age", "draw", "left"),
    [
        (0.0, 0.0, DAY),
        (0.0, 1.0, 0.8 * DAY),
        (0.5 * DAY, 0.5, 0.4 * DAY),
        (DAY, 0.0, 0.0),
        (30 * DAY, 0.7, 0.0),
        # The clock was set back: nobody knows how old the credential is.
        (-1.0, 0.0, 0.0),
        (-1e9, 1.0, 0.0),
    ],
)
def test_a_renewal_is_due_within_a_day_and_joblets_renew_apart(age: float, draw: float, left: float) -> None:
    assert seconds_until_renewal(STORED, 1000.0 + age, draw) == pytest.approx(left)


@pytest.mark.parametrize(
    ("targets", "driver", "allowed"),
    [
        (("a", "b"), "process", True),
        (("b",), "process", True),
        (("a", "c"), "process", False),
        (("a", "b"), "simulated", False),
    ],
)
def test_a_stored_credential_is_for_its_targets_and_its_driver(
    targets: tuple[str, ...], driver: str, allowed: bool
) -> None:
    assert STORED.allows(targets, driver) is allowed


def test_every_text_that_a_replica_may_know_is_kept_until_a_lifetime_has_passed() -> None:
    stored = STORED
    for number in range(2, 20):
        stored = replace(stored, next_token=f"t{number}")
        assert stored.candidates()[:2] == (f"t{number - 1}", f"t{number}")
        stored = stored.renewed_at(2000.0, DAY)
        assert (stored.token, stored.next_token) == (f"t{number}", "")
    assert stored.former == tuple(f"t{number}" for number in range(18, 10, -1))
    assert stored.candidates() == ("t19", *stored.former)


@pytest.mark.parametrize("renew_after", [0.0, 0.1, 1.0, 60.0, DAY])
def test_tries_to_renew_are_apart_and_many_fit_before_the_end(renew_after: float) -> None:
    least, most = credential.retry_bounds(renew_after)
    assert 0.05 <= least <= most <= 60
    assert renew_after < 1 or most <= renew_after / 10
