"""Every event in every state of the pulse, and the promise that the table keeps."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controlplane.election.verdict import HOW, PulseEvent, PulseState, following

U, UP, CUT, QUIET = PulseState.UNREACHED, PulseState.UP, PulseState.CUT, PulseState.QUIET
LEFT, CLOSED, SILENT = PulseState.LEFT, PulseState.CLOSED, PulseState.SILENT
EVENTS = (
    PulseEvent.ALIVE,
    PulseEvent.BYE,
    PulseEvent.CLOSED,
    PulseEvent.SILENCE,
    PulseEvent.REFUSED,
    PulseEvent.IMPOSTOR,
    PulseEvent.NO_ANSWER,
    PulseEvent.UNABLE,
)
EXPECTED = {
    #        ALIVE BYE   CLOSED SILENCE REFUSED IMPOSTOR NO_ANSWER UNABLE
    U: (UP, LEFT, U, U, U, U, U, U),
    UP: (UP, LEFT, CUT, QUIET, UP, UP, UP, UP),
    CUT: (UP, LEFT, CUT, QUIET, CLOSED, CLOSED, CUT, U),
    QUIET: (UP, LEFT, QUIET, QUIET, CLOSED, CLOSED, SILENT, U),
    LEFT: (LEFT,) * 8,
    CLOSED: (CLOSED,) * 8,
    SILENT: (SILENT,) * 8,
}
PAIRS = [(state, event, outcome) for state, row in EXPECTED.items() for event, outcome in zip(EVENTS, row, strict=True)]


@pytest.mark.parametrize(("state", "event", "outcome"), PAIRS)
def test_each_event_in_each_state(state: PulseState, event: PulseEvent, outcome: PulseState) -> None:
    assert following(state, event) is outcome


def test_the_walk_covers_every_pair() -> None:
    assert {(state, event) for state, event, _ in PAIRS} == set(itertools.product(PulseState, PulseEvent))


@given(st.lists(st.sampled_from(sorted(set(PulseEvent) - {PulseEvent.ALIVE, PulseEvent.BYE}, key=str))))
def test_a_leader_that_was_never_heard_is_never_judged(events: list[PulseEvent]) -> None:
    state = PulseState.UNREACHED
    for event in events:
        state = following(state, event)
    assert state is PulseState.UNREACHED


@given(st.lists(st.sampled_from(PulseEvent)))
def test_a_death_needs_a_life_and_a_failed_second_look(events: list[PulseEvent]) -> None:
    state = PulseState.UNREACHED
    for position, event in enumerate(events):
        state = following(state, event)
        if state in (PulseState.CLOSED, PulseState.SILENT):
            assert PulseEvent.ALIVE in events[:position]
            assert event in (PulseEvent.REFUSED, PulseEvent.IMPOSTOR, PulseEvent.NO_ANSWER)
            assert PulseEvent.CLOSED in events[:position] or PulseEvent.SILENCE in events[:position]
            return


def test_every_conclusion_has_a_name_in_the_term_record() -> None:
    assert {state: str(how) for state, how in HOW.items()} == {
        PulseState.LEFT: "stepped-down",
        PulseState.CLOSED: "pulse-closed",
        PulseState.SILENT: "pulse-silent",
    }
