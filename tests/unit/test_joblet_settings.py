"""A joblet that was told nonsense says which field is wrong."""

from __future__ import annotations

from typing import Any

import pytest

from controlplane.joblet.settings import JobletSettings
from controlplane.model.errors import Invalid

GOOD: dict[str, Any] = {"target": "edge", "endpoints": ("127.0.0.1:7001",), "driver": "simulated"}


@pytest.mark.parametrize(
    ("field", "wrong"),
    [
        ("driver", {"driver": "kubernetes"}),
        ("driver", {"driver": "docker"}),
        ("target", {"target": "No_Name"}),
        ("target", {"target": "e" * 62, "count": 11}),
        ("endpoints", {"endpoints": ()}),
        ("endpoints", {"endpoints": ("http://here",)}),
        ("capacity.cpu", {"capacity": {"cpu": -1}}),
        ("capacity.cpu", {"capacity": {"cpu": float("nan")}}),
        ("count", {"count": 0}),
        ("count", {"driver": "process", "data_dir": "here", "count": 2}),
        ("data_dir", {"driver": "process"}),
        ("duration", {"duration": -1}),
        ("failure_rate", {"failure_rate": 1.5}),
        ("failpoints", {"failpoints": "joblet.before-start=explode"}),
    ],
)
def test_a_wrong_setting_is_refused_by_name(field: str, wrong: dict[str, Any]) -> None:
    with pytest.raises(Invalid) as refusal:
        JobletSettings(**{**GOOD, **wrong})
    assert refusal.value.field == field


def test_several_targets_are_numbered_and_one_is_not() -> None:
    assert JobletSettings(**GOOD).targets() == ("edge",)
    assert JobletSettings(**{**GOOD, "count": 3}).targets() == ("edge-0", "edge-1", "edge-2")
