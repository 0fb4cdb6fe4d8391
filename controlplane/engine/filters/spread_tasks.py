"""Spread: the tasks of an order run on different targets."""

from __future__ import annotations

from collections.abc import Iterable

from controlplane.engine import reason_codes
from controlplane.engine.arrays import Mask, Rows
from controlplane.engine.filters.room_filter import Refusal, RoomFilter
from controlplane.engine.room import Room
from controlplane.engine.signature import Signature


class SpreadTasks(RoomFilter):
    code = reason_codes.SPREAD
    ends_with_other_work = True

    def asked_by(self, signature: Signature) -> bool:
        return bool(signature.spread)

    def refused(self, room: Room, signature: Signature, rows: Rows) -> Iterable[Mask]:
        if signature.spread:
            yield room.floor.named(tuple(room.apart(signature.spread)))[rows]

    def why(self, room: Room, signature: Signature, row: int) -> Refusal:
        return Refusal(
            "runs a task of this order already, whose tasks must be on different targets", waiting_helps=True
        )
