"""plans: how far the starts that a plan tells are from the real ones, over random worlds on virtual time.

Every task runs exactly to its time limit, and nothing arrives between a plan and the last start of its order. In other
worlds tasks end earlier than that: most starts come earlier too, but others may go first, which nobody can foresee.
"""

from __future__ import annotations

from statistics import median

from tests.benchmarks.rows import Row
from tests.planned import PlannedWorld, Size, Start

_WORLDS = 40
_EARLY_WORLDS = 20
_SHORTEST = 0.5
_ROUNDING_SECONDS = 0.1
_GOAL_SECONDS = 1.0


def run() -> list[Row]:
    starts = [start for seed in range(_WORLDS) for start in PlannedWorld(seed, Size()).starts()]
    told = [start for start in starts if start.planned is not None]
    error = median(abs(start.late) for start in told)
    worst = max(start.late for start in told)
    late = _late(told)
    waited = median(float(start.planned or 0) for start in told)
    return [
        Row("plans", "error of a planned start, median", error, "s", goal="< 1 s", met=error < _GOAL_SECONDS),
        Row("plans", "worst lateness", worst, "s", goal="<= 0.1 s", met=worst <= _ROUNDING_SECONDS),
        Row("plans", "starts later than planned", 100 * late, "%", goal="0", met=not late),
        Row("plans", "starts that no plan told", len(starts) - len(told), "starts"),
        Row("plans", "planned time until a start, median", waited, "s"),
        Row("plans", f"starts compared, in {_WORLDS} worlds", len(told), "starts"),
        *_when_work_ends_early(),
    ]


def _when_work_ends_early() -> list[Row]:
    worlds = (PlannedWorld(seed, Size(), _SHORTEST) for seed in range(_EARLY_WORLDS))
    told = [start for world in worlds for start in world.starts() if start.planned is not None]
    what = f"work ends after {_SHORTEST:.0%} of its limit or more"
    return [
        Row("plans", f"{what}: starts later than planned", 100 * _late(told), "%"),
        Row("plans", f"{what}: lateness, median", median(start.late for start in told), "s"),
        Row("plans", f"{what}: worst lateness", max(start.late for start in told), "s"),
        Row("plans", f"{what}: starts compared, in {_EARLY_WORLDS} worlds", len(told), "starts"),
    ]


def _late(starts: list[Start]) -> float:
    """Which part of the starts came later than planned."""
    return sum(start.late > _ROUNDING_SECONDS for start in starts) / len(starts)
