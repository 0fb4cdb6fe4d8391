"""A joblet that was told nonsense says which field is wrong."""

from __future__ import annotations

from typing import Any

import pytest

from controlplane.joblet.joblet_settings import ClusterSettings, JobletSettings
from controlplane.model.errors import Invalid

GOOD: dict[str, Any] = {"target": "edge", "endpoints": ("127.0.0.1:7001",), "driver": "simulated"}


@pytest.mark.parametrize(
    ("field", "wrong"),
    [
        ("driver", {"driver": "docker"}),
        ("target", {"target": "No_Name"}),
        ("target", {"target": "e" * 62, "count": 11}),
        ("endpoints", {"endpoints": ()}),
        ("endpoints", {"endpoints": ("http://here",)}),
        ("capacity.cpu", {"capacity": {"cpu": -1}}),
        ("capacity.cpu", {"capacity": {"cpu": float("nan")}}),
        ("count", {"count": 0}),
        ("count", {"driver": "process", "data_dir": "here", "count": 2}),
        ("count", {"driver": "kubernetes", "data_dir": "here", "count": 2}),
        ("data_dir", {"driver": "process"}),
        ("data_dir", {"driver": "kubernetes"}),
        ("nice", {"driver": "process", "data_dir": "here", "nice": 20}),
        ("nice", {"driver": "process", "data_dir": "here", "nice": -1}),
        ("nice", {"nice": 5}),
        ("kubeconfig", {"cluster": ClusterSettings(kubeconfig="file")}),
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


@pytest.mark.parametrize(
    ("field", "wrong"),
    [
        ("request_timeout", {"request_timeout": 0.5}),
        ("tombstone", {"request_timeout": 10, "tombstone": 39}),
        ("start_patience", {"start_patience": -1}),
        ("away", {"away": float("nan")}),
        ("namespace", {"namespace": "No_Name"}),
        ("pull_secrets", {"pull_secrets": ("good", "")}),
        ("security", {"security": "privileged"}),
        ("grace", {"grace": 0}),
        ("grace", {"grace": 1e9}),
    ],
)
def test_a_wrong_setting_of_a_cluster_is_refused_by_name(field: str, wrong: dict[str, Any]) -> None:
    with pytest.raises(Invalid) as refusal:
        ClusterSettings(**wrong)
    assert refusal.value.field == field


def test_tombstones_outlive_what_a_late_create_can_take() -> None:
    assert ClusterSettings(request_timeout=10, tombstone=40).tombstone == 40
