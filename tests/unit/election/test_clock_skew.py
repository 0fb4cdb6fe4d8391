"""Whose clock is off, judged by what all of them show."""

from __future__ import annotations

import pytest

from controlplane.election.clock_skew import skewed_clocks


@pytest.mark.parametrize(
    ("clocks", "off"),
    [
        ({}, {}),
        ({"a": 0.0}, {}),
        ({"a": 0.0, "b": 1.0, "c": -2.0}, {}),
        ({"a": 0.0, "b": 0.1, "c": 3600.0}, {"c": 3599.95}),
        ({"a": 0.0, "b": -3600.0, "c": -3600.1}, {"a": 3600.05}),
        ({"a": 0.0, "b": 3600.0}, {"a": -3600.0, "b": 3600.0}),
        ({"a": 0.0, "b": 100.0, "c": 200.0}, {"a": -150.0, "b": 0.0, "c": 150.0}),
    ],
)
def test_the_one_that_most_others_disagree_with_is_off(clocks: dict[str, float], off: dict[str, float]) -> None:
    assert skewed_clocks(clocks) == pytest.approx(off)
