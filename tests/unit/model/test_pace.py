"""How often joblets speak: never more often than set, and together never more often than the system can bear."""

from __future__ import annotations

import pytest

from controlplane.model.pace import counted, outgrown, pace, stats_seconds
from controlplane.model.settings import Settings

DEFAULTS = Settings()


@pytest.mark.parametrize(("targets", "counts"), [(0, 1), (1, 1), (2, 2), (3, 4), (128, 128), (129, 256), (2000, 2048)])
def test_targets_count_in_powers_of_two(targets: int, counts: int) -> None:
    assert counted(targets) == counts


@pytest.mark.parametrize("targets", [0, 1, 2, 50, 64])
def test_with_few_targets_the_settings_hold(targets: int) -> None:
    assert pace(DEFAULTS, targets) == (1.0, 6)
    assert stats_seconds(DEFAULTS, targets, busy=True) == 5
    assert stats_seconds(DEFAULTS, targets, busy=False) == 15


def test_the_settings_are_the_floor() -> None:
    slow = Settings(heartbeat=40, joblet_lease=300, stats_interval=100)
    assert pace(slow, 2000) == (40.0, 300)
    assert stats_seconds(slow, 2000, busy=True) == 100
    assert stats_seconds(slow, 2000, busy=False) == 300


@pytest.mark.parametrize("targets", range(1, 5000, 37))
def test_all_together_stay_within_what_is_promised(targets: int) -> None:
    beat = pace(DEFAULTS, targets)
    assert targets / beat.heartbeat_seconds <= 96
    assert beat.lease_seconds >= 3 * beat.heartbeat_seconds
    assert targets / stats_seconds(DEFAULTS, targets, busy=False) <= 32
    assert targets / stats_seconds(DEFAULTS, targets, busy=True) <= 128 < 200


def test_more_targets_never_speak_more_often() -> None:
    beats = [pace(DEFAULTS, targets) for targets in range(1, 3000)]
    assert beats == sorted(beats)


@pytest.mark.parametrize("phase", ["Suspect", "Failed", "Draining"])
def test_a_target_that_needs_attention_reports_like_a_busy_one(phase: str) -> None:
    busy = stats_seconds(DEFAULTS, 10, busy=True)
    assert stats_seconds(DEFAULTS, 10, busy=False, phase=phase) == busy
    assert stats_seconds(DEFAULTS, 10, busy=False, phase="Ready") > busy


def test_a_lease_is_kept_for_as_long_as_it_serves() -> None:
    assert not outgrown(6, pace(DEFAULTS, 100))
    assert not outgrown(6, pace(DEFAULTS, 256))
    assert outgrown(6, pace(DEFAULTS, 2000))
    assert not outgrown(64, pace(DEFAULTS, 2000))
    assert outgrown(64, pace(DEFAULTS, 10))
