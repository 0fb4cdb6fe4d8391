"""The phases of orders and targets: every pair of phases is walked."""

from __future__ import annotations

from enum import StrEnum

import pytest

from controlplane.model.errors import IllegalTransition
from controlplane.model.lifecycle import (
    FINAL_ORDER,
    ORDER,
    TARGET,
    OrderPhase,
    Phases,
    TargetPhase,
    follow,
    may_follow,
)

Machine = tuple[Phases, type[StrEnum], StrEnum, frozenset[StrEnum]]
MACHINES: dict[str, Machine] = {
    "order": (ORDER, OrderPhase, OrderPhase.PENDING, frozenset(FINAL_ORDER)),
    "target": (TARGET, TargetPhase, TargetPhase.PROVISIONING, frozenset({TargetPhase.GONE})),
}
# Written a second time: all steps but staying put.
STEPS = {
    "order": {
        "Pending": "Running Paused Succeeded Failed Cancelled",
        "Running": "Paused Succeeded Failed Cancelled",
        "Paused": "Pending Running Succeeded Failed Cancelled",
    },
    "target": {
        "Provisioning": "Ready Suspect Cordoned Draining Gone",
        "Ready": "Suspect Cordoned Draining Gone",
        "Suspect": "Ready Failed Cordoned Draining Gone",
        "Failed": "Ready Cordoned Draining Gone",
        "Cordoned": "Ready Suspect Draining Gone",
        "Draining": "Drained Cordoned Ready Suspect Gone",
        "Drained": "Draining Cordoned Ready Suspect Gone",
    },
}


@pytest.mark.parametrize("name", MACHINES)
def test_a_phase_stays_or_is_followed_by_those_of_the_table_and_any_other_is_refused(name: str) -> None:
    table, phases, _, _ = MACHINES[name]
    for before in phases:
        for after in phases:
            allowed = before == after or after in STEPS[name].get(before, "").split()
            assert may_follow(table, before, after) == allowed, (before, after)
            if allowed:
                assert follow(table, before, after) is after
            else:
                with pytest.raises(IllegalTransition):
                    follow(table, before, after)


@pytest.mark.parametrize("name", MACHINES)
def test_exactly_the_final_phases_have_no_way_out(name: str) -> None:
    table, phases, _, final = MACHINES[name]
    assert set(table) == set(phases)
    assert {phase for phase, afters in table.items() if not afters} == final


@pytest.mark.parametrize("name", MACHINES)
def test_every_phase_can_be_reached_from_the_first(name: str) -> None:
    table, phases, first, _ = MACHINES[name]
    reached: set[str] = {first}
    while more := {after for before in reached for after in table[before]} - reached:
        reached |= more
    assert reached == set(phases)


def test_an_unknown_phase_on_record_is_illegal_in_history_but_may_be_mended() -> None:
    assert not may_follow(ORDER, "Sunny", "Running")
    assert follow(ORDER, "Sunny", OrderPhase.RUNNING) is OrderPhase.RUNNING
