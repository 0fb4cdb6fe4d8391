"""The verdict of a standby on the pulse of a leader in a single epoch: states, events, a table. Pure.

The promise: a pulse ends a term only when the leader was reached in the epoch and then either said good-bye, or its
connection closed and its address refuses connections (or another incarnation answers there), or the leader stayed
silent and a fresh connection got no answer either. A standby that never reached the leader concludes nothing, whatever
happens.

Where replicas prove themselves with the cluster key, only a proven answer is ALIVE, BYE or IMPOSTOR, and an answer
without a proof is NO_ANSWER. So a stranger at the address of the leader neither keeps a dead leader alive nor ends a
term at once; `listener` says what is left to a stranger.
"""

from __future__ import annotations

from enum import Enum

from controlplane.election.queue_position import How


class PulseState(Enum):
    UNREACHED = "unreached"
    UP = "up"
    CUT = "cut"  # the connection closed; a fresh connection is tried
    QUIET = "quiet"  # silent for too long; a fresh connection is tried
    LEFT = "left"
    CLOSED = "closed"
    SILENT = "silent"


class PulseEvent(Enum):
    ALIVE = "alive"  # a message of the right incarnation
    BYE = "bye"  # a message of the right incarnation: the epoch is over
    CLOSED = "closed"  # the connection that was up is closed or reset
    SILENCE = "silence"  # no message for pulse_silence_seconds of own ticks
    REFUSED = "refused"  # a fresh connection was refused
    IMPOSTOR = "impostor"  # a fresh connection was answered by another incarnation
    NO_ANSWER = "no-answer"  # a fresh connection got no answer
    UNABLE = "unable"  # the standby could not even try, which says nothing about the leader


HOW = {PulseState.LEFT: How.STEPPED_DOWN, PulseState.CLOSED: How.PULSE_CLOSED, PulseState.SILENT: How.PULSE_SILENT}

_TABLE: dict[PulseState, dict[PulseEvent, PulseState]] = {
    PulseState.UNREACHED: {PulseEvent.ALIVE: PulseState.UP, PulseEvent.BYE: PulseState.LEFT},
    PulseState.UP: {
        PulseEvent.BYE: PulseState.LEFT,
        PulseEvent.CLOSED: PulseState.CUT,
        PulseEvent.SILENCE: PulseState.QUIET,
    },
    PulseState.CUT: {
        PulseEvent.ALIVE: PulseState.UP,
        PulseEvent.BYE: PulseState.LEFT,
        PulseEvent.SILENCE: PulseState.QUIET,
        PulseEvent.REFUSED: PulseState.CLOSED,
        PulseEvent.IMPOSTOR: PulseState.CLOSED,
        PulseEvent.UNABLE: PulseState.UNREACHED,
    },
    PulseState.QUIET: {
        PulseEvent.ALIVE: PulseState.UP,
        PulseEvent.BYE: PulseState.LEFT,
        PulseEvent.REFUSED: PulseState.CLOSED,
        PulseEvent.IMPOSTOR: PulseState.CLOSED,
        PulseEvent.NO_ANSWER: PulseState.SILENT,
        PulseEvent.UNABLE: PulseState.UNREACHED,
    },
    PulseState.LEFT: {},
    PulseState.CLOSED: {},
    PulseState.SILENT: {},
}


def following(state: PulseState, event: PulseEvent) -> PulseState:
    """The next state; an event without an entry in the table changes no state, and a conclusion is final."""
    return _TABLE[state].get(event, state)
