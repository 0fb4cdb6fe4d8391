"""Exclusive use: an exclusive job runs alone on the target, without neighbours."""

from __future__ import annotations

from collections.abc import Iterable

from controlplane.engine import reason_codes
from controlplane.engine.arrays import Mask, Rows
from controlplane.engine.filters.room_filter import Refusal, RoomFilter
from controlplane.engine.room import Room
from controlplane.engine.signature import Signature


class ExclusiveUse(RoomFilter):
    code = reason_codes.EXCLUSIVE
    ends_with_other_work = True

    def asked_by(self, signature: Signature) -> bool:
        return signature.kind.exclusive

    def present_in(self, room: Room) -> bool:
        return room.neighbours.any_closed

    def refused(self, room: Room, signature: Signature, rows: Rows) -> Iterable[Mask]:
        if signature.kind.exclusive:
            yield room.neighbours.tasks[rows] > 0
        elif room.neighbours.any_closed:
            yield room.neighbours.closed[rows]

    def why(self, room: Room, signature: Signature, row: int) -> Refusal:
        if signature.kind.exclusive:
            return Refusal("runs something already, and the job wants no neighbours", waiting_helps=True)
        return Refusal("runs a job that wants no neighbours", waiting_helps=True)
