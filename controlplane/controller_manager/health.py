"""Which phase a target is in. Pure: what is seen of it in, its phase out.

A session that ended makes a target Suspect and, after the grace time, Failed. One that comes back is Ready only when
nothing lives there any more that is no longer desired. Phases change along the table only: what is two steps away is
reached in two writes.
"""

from __future__ import annotations

from dataclasses import dataclass

from controlplane.model import silence
from controlplane.model.lifecycle import TARGET, TargetPhase, steps
from controlplane.model.target import Live, Target, TargetStatus

SILENT = "JobletSilent"
OLD_WORK = "StopsOldWork"
HOLDERS = "HoldersMayLive"
_STEPS = steps(TARGET)


@dataclass(frozen=True, slots=True)
class Sight:
    """What is seen of one target. `silent` is for how many seconds its session is known to be gone.

    `target` is None when it was deleted, `live` while no session is there. `suspect` and `grace` are the seconds of
    silence after which it is Suspect and Failed.
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
        """Long enough without a joblet that, where its driver kills holders, nothing it ran holds anything any more."""
        return self.live is None and self.silent >= self.grace

    @property
    def driver(self) -> str:
        """Of the session that is there or the last one that was; before the first one, what its user says."""
        if self.live is not None and self.live.session:
            return self.live.driver
        known = self.before.driver if self.before is not None else ""
        return known or (self.target.driver if self.target is not None else "")

    @property
    def phase(self) -> TargetPhase:
        """The recorded one; a target without status, or with one that nobody knows, is Provisioning."""
        known = self.before is not None and self.before.phase in TargetPhase._value2member_map_
        return TargetPhase(self.before.phase) if known and self.before is not None else TargetPhase.PROVISIONING


def phase_of(sight: Sight) -> TargetPhase:
    """The phase to record now: where it belongs, or the step on the way there."""
    goal = _goal(sight)
    if (sight.phase, goal) in _STEPS:
        return goal
    return TargetPhase.DRAINING if goal == TargetPhase.DRAINED else TargetPhase.SUSPECT


def _goal(sight: Sight) -> TargetPhase:
    target = sight.target
    if target is None:
        return TargetPhase.GONE if not sight.placed else sight.phase
    if sight.live is None:
        return _silent(sight)
    if target.drain:
        return TargetPhase.DRAINING if sight.placed or sight.live.leftovers else TargetPhase.DRAINED
    if target.cordoned:
        return TargetPhase.CORDONED
    if sight.live.leftovers:
        return sight.phase
    return TargetPhase.READY


def _silent(sight: Sight) -> TargetPhase:
    """One that never had work never had a joblet to lose; one that is lost stays so."""
    if sight.phase == TargetPhase.FAILED or (sight.phase == TargetPhase.PROVISIONING and not sight.placed):
        return sight.phase
    if sight.silent >= sight.grace:
        return TargetPhase.FAILED
    return TargetPhase.SUSPECT if sight.silent >= sight.suspect else sight.phase


def reason_of(sight: Sight, phase: TargetPhase) -> str:
    """Why it takes nothing, where the phase alone does not say so."""
    if sight.live is not None:
        return OLD_WORK if sight.live.leftovers else ""
    if phase == TargetPhase.FAILED and sight.placed and not silence.kills_holders(sight.driver):
        return HOLDERS
    return SILENT if phase in (TargetPhase.SUSPECT, TargetPhase.FAILED) else ""
