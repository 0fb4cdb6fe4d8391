"""Target state: a target takes new work only while Ready, and not while cordoned, draining or being removed."""

from __future__ import annotations

from collections.abc import Iterable

from controlplane.engine import reason_codes
from controlplane.engine.arrays import Mask, Rows
from controlplane.engine.filters.room_filter import Refusal, RoomFilter
from controlplane.engine.room import Room
from controlplane.engine.signature import Signature
from controlplane.engine.world import LEAVING

_PHASES = {
    "Provisioning": "it is Provisioning, no joblet has come for it yet",
    "Ready": "its joblet is still stopping old work",
    "Suspect": "it is Suspect, its joblet has fallen silent",
    "Failed": "it is Failed, its joblet is gone or still stops old work",
    "Cordoned": "it is Cordoned, somebody has to uncordon it",
    "Draining": "it is Draining, what runs there may end and somebody has to uncordon it",
    "Drained": "it is Drained, somebody has to uncordon it",
    "Gone": "it is Gone",
}
# These phases end only when a person acts, or never.
_FOR_GOOD = frozenset({"Cordoned", "Draining", "Drained", "Gone"})


class TargetReadiness(RoomFilter):
    code = reason_codes.NOT_READY

    def present_in(self, room: Room) -> bool:
        return not room.all_take

    def refused(self, room: Room, signature: Signature, rows: Rows) -> Iterable[Mask]:
        yield ~room.ready[rows]

    def why(self, room: Room, signature: Signature, row: int) -> Refusal:
        phase = room.world.targets[row].phase
        helps = phase not in _FOR_GOOD and not phase.startswith(LEAVING)
        return Refusal(f"takes no new work: {_PHASES.get(phase, f'it is {phase}')}", helps)
