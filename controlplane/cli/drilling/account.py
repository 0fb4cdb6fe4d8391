"""What a drill comes to: its numbers, and whether they are good. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from controlplane.cli.drilling.offer import ENOUGH
from controlplane.model.quantity import whole
from controlplane.verify.checks import Checks


@dataclass(frozen=True, slots=True)
class Load:
    offered_rate: float
    reached_rate: float
    acknowledged: Sequence[str]


def answer(seconds: Sequence[float], load: Load, ends: Mapping[str, str], checks: Checks) -> dict[str, Any]:
    """`ends` are the final phases of orders; `checks` have heard all history and the joblets' records."""
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


def is_good(found: Mapping[str, Any], kills: int) -> bool:
    whole_again = found["lost"] == found["duplicated"] == 0 and found["succeeded"] == found["submitted"]
    return bool(whole_again and found["kills"] == kills and found["reached_rate"] >= ENOUGH * found["offered_rate"])


def rank(values: Sequence[float], part: float) -> float | None:
    """The smallest value that this part of all values does not exceed."""
    if not values:
        return None
    return round(sorted(values)[max(0, math.ceil(part * len(values)) - 1)], 4)
