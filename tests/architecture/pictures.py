"""The lifecycle pictures of the tour, drawn from the tables in `model/task.py` and `model/lifecycle.py`.

`python -m tests.architecture.pictures` puts fresh ones into `controlplane/README.md`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import Path

from controlplane.model.lifecycle import ORDER, TARGET, OrderPhase, TargetPhase
from controlplane.model.task import OPEN, TABLE, WAITING, TaskState

TOUR = Path(__file__).parents[2] / "controlplane" / "README.md"
# Sets of states that many events have in common, drawn as a state of their own.
SETS = {frozenset(state.name for state in OPEN): "Open", frozenset(state.name for state in WAITING): "Waiting"}


def draw_task() -> str:
    """The table of tasks: events with the same states before and the same state after share an arrow."""
    befores: dict[tuple[str, str], set[str]] = {}
    for (before, event), after in TABLE.items():
        befores.setdefault((event, after.name), set()).add(before.name)
    arrows: dict[tuple[str, str], list[str]] = {}
    for (word, after_name), names in befores.items():
        for before_name in [SETS[frozenset(names)]] if frozenset(names) in SETS else sorted(names):
            arrows.setdefault((before_name, after_name), []).append(word)
    final = {after.name for after in TABLE.values()} - {before.name for before, _ in TABLE}
    sets = [f'state "{name}: {_listed(names)}" as {name}' for names, name in SETS.items()]
    lines = (f"{before} --> {after}: {', '.join(events)}" for (before, after), events in arrows.items())
    return _diagram(TaskState.NEW.name, [*sets, *lines], final)


def draw_phases(table: Mapping[str, frozenset[str]], first: str) -> str:
    """The phases that may follow each phase."""
    lines = (f"{before} --> {after}" for before, afters in table.items() for after in table if after in afters)
    return _diagram(first, lines, (phase for phase, afters in table.items() if not afters))


def _listed(names: Iterable[str]) -> str:
    *most, last = (state.name for state in TaskState if state.name in names)
    return f"{', '.join(most)} or {last}"


def _diagram(first: str, lines: Iterable[str], final: Iterable[str]) -> str:
    every = (f"[*] --> {first}", *lines, *(f"{phase} --> [*]" for phase in sorted(final)))
    return "\n".join(("```mermaid", "stateDiagram-v2", *(f"    {line}" for line in every), "```", ""))


PICTURES: dict[str, str] = {
    "task": draw_task(),
    "order": draw_phases(ORDER, OrderPhase.PENDING),
    "target": draw_phases(TARGET, TargetPhase.PROVISIONING),
}


def marked(name: str) -> re.Pattern[str]:
    return re.compile(rf"(<!-- lifecycle:{name} -->\n)(.*?)(<!-- /lifecycle:{name} -->)", re.DOTALL)


def refreshed(text: str) -> str:
    """The text with every picture drawn anew."""
    for name, picture in PICTURES.items():
        # Neither side holds a backslash, so the picture can be a template.
        text = marked(name).sub(rf"\g<1>{picture}\g<3>", text)
    return text


if __name__ == "__main__":
    TOUR.write_text(refreshed(TOUR.read_text()))
