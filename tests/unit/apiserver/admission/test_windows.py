"""Windows of a target: few time zones, whatever their number."""

from __future__ import annotations

from typing import cast

import pytest

from controlplane.apiserver.admission import target_admission as targets
from controlplane.apiserver.admission.catalogue import Catalogue
from controlplane.model.errors import Invalid, LimitExceeded
from controlplane.model.target import Target, Window

NOBODY = cast(Catalogue, None)
ZONES = ("UTC", "Europe/Berlin", "Asia/Tokyo", "America/New_York", "Asia/Kolkata")


def in_zones(*zones: str) -> Target:
    windows = tuple(Window(from_="08:00", to=f"{9 + number % 10:02}:00", tz=zone) for number, zone in enumerate(zones))
    return Target(name="t", windows=windows)


def test_many_windows_in_four_time_zones_are_admitted() -> None:
    targets.admit(in_zones(*(ZONES[:4] * 16)), NOBODY)


def test_a_fifth_time_zone_is_refused() -> None:
    with pytest.raises(LimitExceeded) as refused:
        targets.admit(in_zones(*ZONES), NOBODY)
    assert refused.value.field == "windows"


def test_a_time_zone_that_is_megabytes_long_is_refused_in_few_words() -> None:
    with pytest.raises(Invalid) as refused:
        targets.admit(in_zones("x" * (4 << 20)), NOBODY)
    assert refused.value.field == "windows[0].tz"
    assert len(str(refused.value)) < 300
