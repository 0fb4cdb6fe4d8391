"""Left targets: a task which is to run elsewhere does not go back to the target left before.

The filter refuses as long as another target which could hold the task takes work; otherwise the task may go back. A
target too small for the task even when empty does not count as another target: waiting for room there would never end.
"""

from __future__ import annotations

from collections.abc import Iterable

from controlplane.engine import reason_codes
from controlplane.engine.arrays import Mask, Rows
from controlplane.engine.filters.room_filter import Refusal, RoomFilter
from controlplane.engine.room import Room
from controlplane.engine.signature import Signature


class LeftTarget(RoomFilter):
    code = reason_codes.AVOIDED

    def asked_by(self, signature: Signature) -> bool:
        return bool(signature.hint.avoid)

    def refused(self, room: Room, signature: Signature, rows: Rows) -> Iterable[Mask]:
        left = room.floor.named(signature.hint.avoid)
        others = room.floor.static(signature).rows
        ruling = room.ruling(signature)
        closed = (limit.mask for limit in ruling.limits if limit.most <= 0)
        for refused in (*ruling.forbidden.values(), *(~required for required in ruling.required.values()), *closed):
            others = others[~refused[others]]
        instead = room.takes[others] & ~left[others] & room.holds(signature)[others]
        if instead.any():
            yield left[rows]

    def why(self, room: Room, signature: Signature, row: int) -> Refusal:
        text = "is where it was before and is not to go again, as long as another target could hold it"
        return Refusal(text, waiting_helps=True)
