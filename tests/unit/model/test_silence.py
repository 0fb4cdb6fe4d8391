"""The times between silence and loss fit together, whoever wrote them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controlplane.model import silence
from controlplane.model.settings import DEFAULT, Settings

SECONDS = st.floats(min_value=0, max_value=10_000, allow_nan=False)


@pytest.mark.parametrize(
    ("settings", "field"),
    [
        (Settings(joblet_lease=1), "joblet_lease"),
        (Settings(heartbeat=2.1), "heartbeat"),
        # A lease counts whole seconds: 2.9 are 2.
        (Settings(joblet_lease=2.9, heartbeat=0.9), "heartbeat"),
        (Settings(kill_grace=0.1), "kill_grace"),
        (Settings(target_grace=1), "target_grace"),
        (Settings(target_suspect=6), "target_suspect"),
    ],
)
def test_what_does_not_fit_is_named(settings: Settings, field: str) -> None:
    misfit = silence.misfit(settings)
    assert misfit is not None
    assert misfit[0] == field


def test_the_defaults_fit() -> None:
    assert silence.misfit(DEFAULT) is None
    assert silence.fitting(DEFAULT) is DEFAULT


@given(SECONDS, SECONDS, SECONDS, SECONDS, SECONDS)
def test_what_is_made_to_fit_does_and_gives_nothing_away_sooner(
    lease: float, beat: float, kill: float, grace: float, suspect: float
) -> None:
    told = Settings(joblet_lease=lease, heartbeat=beat, kill_grace=kill, target_grace=grace, target_suspect=suspect)
    made = silence.fitting(told)
    assert silence.misfit(made) is None
    assert silence.grace_seconds(made, 0) >= max(grace, kill)
    assert made.joblet_lease >= lease


def test_work_is_not_given_away_before_the_time_that_its_session_was_promised() -> None:
    assert silence.grace_seconds(Settings(target_grace=5), stop_within=30) == 30
    assert silence.grace_seconds(Settings(target_grace=5), stop_within=1) == 5


@pytest.mark.parametrize(("heartbeat", "lease", "beat"), [(1, 6, 1), (5, 6, 2), (1, 0, 1)])
def test_a_joblet_beats_three_times_a_lease_whatever_it_is_told(heartbeat: float, lease: float, beat: float) -> None:
    assert silence.beat_seconds(heartbeat, lease) == beat
