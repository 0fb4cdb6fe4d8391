"""The lifecycle pictures of the tour, drawn from the tables in `model/lifecycle.py`.

`python -m tests.architecture.pictures` puts fresh ones into `controlplane/README.md`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path
from typing import Any

from controlplane.model.lifecycle import ORDER, TARGET, TASK, OrderPhase, TargetPhase, TaskPhase

TOUR = Path(__file__).parents[2] / "controlplane" / "README.md"
PICTURES: dict[str, tuple[Mapping[tuple[Any, Any], Any], StrEnum]] = {
    "task": (TASK, TaskPhase.PENDING),
    "order": (ORDER, OrderPhase.PENDING),
    "target": (TARGET, TargetPhase.PROVISIONING),
}


def draw(table: Mapping[tuple[Any, Any], Any], first: StrEnum) -> str:
    """The table as a mermaid state diagram: one arrow for each pair of phases, named by its events."""
    arrows: dict[tuple[str, str], list[str]] = {}
    for (before, event), after in table.items():
        arrows.setdefault((before.value, after.value), []).append(event.value)
    final = {after for _, after in arrows} - {before for before, _ in arrows}
    lines = [f"[*] --> {first.value}"]
    lines += [f"{before} --> {after}: {', '.join(events)}" for (before, after), events in arrows.items()]
    lines += [f"{phase} --> [*]" for phase in sorted(final)]
    return "\n".join(("```mermaid", "stateDiagram-v2", *(f"    {line}" for line in lines), "```", ""))


def marked(name: str) -> re.Pattern[str]:
    return re.compile(rf"(<!-- lifecycle:{name} -->\n)(.*?)(<!-- /lifecycle:{name} -->)", re.DOTALL)


def refreshed(text: str) -> str:
    """The text with every picture drawn anew."""
    for name, (table, first) in PICTURES.items():
        # Neither side holds a backslash, so the picture can be a template.
        text = marked(name).sub(rf"\g<1>{draw(table, first)}\g<3>", text)
    return text


if __name__ == "__main__":
    TOUR.write_text(refreshed(TOUR.read_text()))
