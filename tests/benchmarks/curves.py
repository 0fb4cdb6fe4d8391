"""Growth curves as a picture: each series over its size, both axes starting at nothing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import pygal


def draw(path: Path, series: Mapping[str, Sequence[tuple[float, float]]]) -> None:
    chart = pygal.XY(
        title="Seconds of one decision, by size",
        x_title="part of the full size",
        y_title="seconds",
        include_x_axis=True,
    )
    for name, points in series.items():
        full = max(size for size, _ in points)
        chart.add(name, [(0.0, 0.0), *((size / full, seconds) for size, seconds in points)])
    chart.render_to_file(str(path))
