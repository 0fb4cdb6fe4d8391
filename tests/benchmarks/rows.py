"""The rows that a benchmark reports, and how they are shown."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass

from rich.console import Console
from rich.table import Table


@dataclass(frozen=True)
class Row:
    """`ratio` is value / baseline; `goal` is what design and README promise, `met` whether this run kept it."""

    bench: str
    metric: str
    value: float
    unit: str
    baseline: float | None = None
    ratio: float | None = None
    goal: str = ""
    met: bool | None = None


def quantile(values: Iterable[float], part: float) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(part * len(ordered)))]


def as_json(rows: Iterable[Row]) -> str:
    return json.dumps([asdict(row) for row in rows], indent=2)


def show(rows: Iterable[Row]) -> None:
    table = Table(box=None, pad_edge=False)
    for name, justify in (
        ("BENCH", "left"), ("METRIC", "left"), ("VALUE", "right"), ("UNIT", "left"), ("BASELINE", "right"),
        ("RATIO", "right"), ("GOAL", "left"), ("MET", "left"),
    ):  # fmt: skip
        table.add_column(name, justify="right" if justify == "right" else "left")
    for row in rows:
        met = "" if row.met is None else "yes" if row.met else "NO"
        table.add_row(
            row.bench,
            row.metric,
            _number(row.value),
            row.unit,
            _number(row.baseline),
            _number(row.ratio),
            row.goal,
            met,
        )
    Console().print(table)


def _number(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"
