"""The result of a drill: its numbers, and whether the numbers are good. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from controlplane.model.quantity import whole
from controlplane.standalone.drilling.offer import ENOUGH
from controlplane.verify.checks import Checks


@dataclass(frozen=True, slots=True)
class Load:
    offered_rate: float
    reached_rate: float
    acknowledged: Sequence[str]


def answer(seconds: Sequence[float], load: Load, ends: Mapping[str, str], checks: Checks) -> dict[str, Any]:
    """The drill's JSON. `ends` maps orders to final phases; `checks` have read all history and the joblets' records."""
    ours = set(load.acknowledged)
    return {
        "kills": len(seconds),
        "seconds": {"p50": rank(seconds, 0.5), "p99": rank(seconds, 0.99), "max": rank(seconds, 1.0)},
        "offered_rate": whole(load.offered_rate),
        "reached_rate": round(load.reached_rate, 2),
        "submitted": len(ours),
        "succeeded": sum(ends.get(name) == "Succeeded" for name in ours),
        "lost": checks.orders.missing(ours),
        "duplicated": len({attempt for attempt in checks.attempts.duplicates if attempt[0] in ours}),
    }


def is_good(result: Mapping[str, Any], kills: int) -> bool:
    """Every kill happened, the load was reached, and every order succeeded exactly once."""
    whole_again = result["lost"] == result["duplicated"] == 0 and result["succeeded"] == result["submitted"]
    return bool(whole_again and result["kills"] == kills and result["reached_rate"] >= ENOUGH * result["offered_rate"])


def rank(values: Sequence[float], part: float) -> float | None:
    """The smallest value at or above this part of all values, a percentile by nearest rank."""
    if not values:
        return None
    return round(sorted(values)[max(0, math.ceil(part * len(values)) - 1)], 4)
