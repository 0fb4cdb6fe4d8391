"""The phase tables: every pair of phase and event is walked."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Any

import pytest

from controlplane.model import lifecycle
from controlplane.model.errors import IllegalTransition
from controlplane.model.lifecycle import (
    FINAL_ORDER,
    FINAL_TASK,
    ORDER,
    TARGET,
    TASK,
    OrderEvent,
    OrderPhase,
    TargetEvent,
    TargetPhase,
    TaskEvent,
    TaskPhase,
)

Machine = tuple[Mapping[Any, Any], type[StrEnum], type[StrEnum], StrEnum, frozenset[Any]]
MACHINES: dict[str, Machine] = {
    "task": (TASK, TaskPhase, TaskEvent, TaskPhase.PENDING, FINAL_TASK),
    "order": (ORDER, OrderPhase, OrderEvent, OrderPhase.PENDING, FINAL_ORDER),
    "target": (TARGET, TargetPhase, TargetEvent, TargetPhase.PROVISIONING, frozenset({TargetPhase.GONE})),
}


@pytest.mark.parametrize("name", MACHINES)
def test_every_event_either_moves_along_the_table_or_is_refused(name: str) -> None:
    table, phases, events, _, _ = MACHINES[name]
    for phase in phases:
        for event in events:
            if (phase, event) in table:
                assert lifecycle.move(table, phase, event) is table[phase, event]
            else:
                with pytest.raises(IllegalTransition):
                    lifecycle.move(table, phase, event)


@pytest.mark.parametrize("name", MACHINES)
def test_exactly_the_final_phases_have_no_way_out(name: str) -> None:
    table, phases, _, _, final = MACHINES[name]
    assert set(phases) - {phase for phase, _ in table} == final


@pytest.mark.parametrize("name", MACHINES)
def test_every_phase_can_be_reached_from_the_first(name: str) -> None:
    table, phases, _, first, _ = MACHINES[name]
    reached = {first}
    while more := {after for (before, _), after in table.items() if before in reached} - reached:
        reached |= more
    assert reached == set(phases)


@pytest.mark.parametrize("name", MACHINES)
def test_every_event_is_of_use_somewhere(name: str) -> None:
    table, _, events, _, _ = MACHINES[name]
    assert {event for _, event in table} == set(events)


def test_the_steps_that_verify_reads_are_the_table_and_staying_put() -> None:
    steps = lifecycle.steps(ORDER)
    assert ("Running", "Succeeded") in steps
    assert ("Running", "Running") in steps
    assert ("Succeeded", "Running") not in steps
    assert ("Running", "Pending") not in steps
    assert len(steps) == len({(before, after) for (before, _), after in ORDER.items()}) + len(OrderPhase)
