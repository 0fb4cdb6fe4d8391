"""What a standby concludes from the pulse of one leader in one epoch: states, events, a table. Pure.

The promise: a term is ended by its pulse only when the leader was reached in this epoch and then either said good-bye,
or its connection closed and nobody (or somebody else) is at its address, or it stayed silent and a fresh connection
got no answer either. A standby that never reached the leader concludes nothing, whatever happens.
"""

from __future__ import annotations

from enum import Enum

from controlplane.election.standing import How


class State(Enum):
    UNREACHED = "unreached"
    UP = "up"
    CUT = "cut"  # the connection closed; a fresh one is tried
    QUIET = "quiet"  # silent for too long; a fresh connection is tried
    LEFT = "left"
    CLOSED = "closed"
    SILENT = "silent"


class Event(Enum):
    ALIVE = "alive"  # a message of the right incarnation
    BYE = "bye"  # a message of the right incarnation: this epoch is over
    CLOSED = "closed"  # the connection that was up is closed or reset
    SILENCE = "silence"  # nothing was heard for pulse_silence_seconds of own ticks
    REFUSED = "refused"  # a fresh connection was refused
    IMPOSTOR = "impostor"  # a fresh connection was answered by another incarnation
    NO_ANSWER = "no-answer"  # a fresh connection got no answer
    UNABLE = "unable"  # this side could not even try: that says nothing about the leader


HOW = {State.LEFT: How.STEPPED_DOWN, State.CLOSED: How.PULSE_CLOSED, State.SILENT: How.PULSE_SILENT}

_TABLE: dict[State, dict[Event, State]] = {
    State.UNREACHED: {Event.ALIVE: State.UP, Event.BYE: State.LEFT},
    State.UP: {
        Event.BYE: State.LEFT,
        Event.CLOSED: State.CUT,
        Event.SILENCE: State.QUIET,
    },
    State.CUT: {
        Event.ALIVE: State.UP,
        Event.BYE: State.LEFT,
        Event.SILENCE: State.QUIET,
        Event.REFUSED: State.CLOSED,
        Event.IMPOSTOR: State.CLOSED,
        Event.UNABLE: State.UNREACHED,
    },
    State.QUIET: {
        Event.ALIVE: State.UP,
        Event.BYE: State.LEFT,
        Event.REFUSED: State.CLOSED,
        Event.IMPOSTOR: State.CLOSED,
        Event.NO_ANSWER: State.SILENT,
        Event.UNABLE: State.UNREACHED,
    },
    State.LEFT: {},
    State.CLOSED: {},
    State.SILENT: {},
}


def following(state: State, event: Event) -> State:
    """The next state; an event that the table does not name changes nothing, and a conclusion is final."""
    return _TABLE[state].get(event, state)
