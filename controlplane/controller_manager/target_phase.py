"""The phase of a target. Pure: the target's state in, the phase out.

A session that ended makes a target Suspect and, after the grace time, Failed. A target that comes back is Ready only
when no undesired attempt lives there any more. Phases change along the table only: a phase two steps away is reached in
two writes.
"""

from __future__ import annotations

from dataclasses import dataclass

from controlplane.model.driver_traits import traits_of
from controlplane.model.lifecycle import TARGET, TargetPhase, follow, may_follow
from controlplane.model.target import Live, Target, TargetStatus

SILENT = "JobletSilent"
OLD_WORK = "StopsOldWork"
HOLDERS = "HoldersMayLive"


@dataclass(frozen=True, slots=True)
class TargetState:
    """The state of a target as a leader sees it. `silent` is the time for which the session is known to be gone.

    `target` is None when deleted, `live` while there is no session. `suspect` and `grace` are the seconds of silence
    after which the target is Suspect and Failed.
    """

    target: Target | None
    live: Live | None
    placed: int
    before: TargetStatus | None
    silent: float = 0.0
    suspect: float = 0.0
    grace: float = 0.0

    @property
    def lost(self) -> bool:
        """Long enough without a joblet: where the driver kills holders, no attempt holds a resource any more."""
        return self.live is None and self.silent >= self.grace

    @property
    def driver(self) -> str:
        """The driver of the current or the last session; before the first session, the configured driver."""
        if self.live is not None and self.live.session:
            return self.live.driver
        recorded = self.before.driver if self.before is not None else ""
        return recorded or (self.target.driver if self.target is not None else "")

    @property
    def phase(self) -> TargetPhase:
        """The recorded phase; a target without a readable phase is Provisioning."""
        readable = self.before is not None and self.before.phase in TargetPhase._value2member_map_
        return TargetPhase(self.before.phase) if readable and self.before is not None else TargetPhase.PROVISIONING


def phase_of(state: TargetState) -> TargetPhase:
    """The phase to record now: the final phase, or a step on the way."""
    goal = _goal(state)
    if may_follow(TARGET, state.phase, goal):
        return goal
    return follow(TARGET, state.phase, TargetPhase.DRAINING if goal == TargetPhase.DRAINED else TargetPhase.SUSPECT)


def _goal(state: TargetState) -> TargetPhase:
    target = state.target
    if target is None:
        return TargetPhase.GONE if not state.placed else state.phase
    if state.live is None:
        return _silent(state)
    if target.drain:
        return TargetPhase.DRAINING if state.placed or state.live.leftovers else TargetPhase.DRAINED
    if target.cordoned:
        return TargetPhase.CORDONED
    if state.live.leftovers:
        return state.phase
    return TargetPhase.READY


def _silent(state: TargetState) -> TargetPhase:
    """A target that never had work never had a joblet to lose; a lost target stays lost."""
    if state.phase == TargetPhase.FAILED or (state.phase == TargetPhase.PROVISIONING and not state.placed):
        return state.phase
    if state.silent >= state.grace:
        return TargetPhase.FAILED
    return TargetPhase.SUSPECT if state.silent >= state.suspect else state.phase


def reason_of(state: TargetState, phase: TargetPhase) -> str:
    """Why the target takes no work, where the phase alone does not say so."""
    if state.live is not None:
        return OLD_WORK if state.live.leftovers else ""
    if phase == TargetPhase.FAILED and state.placed and not traits_of(state.driver).kills_holders:
        return HOLDERS
    return SILENT if phase in (TargetPhase.SUSPECT, TargetPhase.FAILED) else ""
