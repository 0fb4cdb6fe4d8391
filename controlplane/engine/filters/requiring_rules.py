"""Requiring rules: rules which require properties of targets."""

from __future__ import annotations

from collections.abc import Iterable

from controlplane.engine import reason_codes
from controlplane.engine.arrays import Mask, Rows
from controlplane.engine.filters.room_filter import Refusal, RoomFilter
from controlplane.engine.filters.wording import listed
from controlplane.engine.room import Room
from controlplane.engine.signature import Signature


class RequiringRules(RoomFilter):
    code = reason_codes.RULE_REQUIRES

    def present_in(self, room: Room) -> bool:
        return room.ruled

    def refused(self, room: Room, signature: Signature, rows: Rows) -> Iterable[Mask]:
        return (~mask[rows] for mask in room.ruling(signature).required.values())

    def why(self, room: Room, signature: Signature, row: int) -> Refusal:
        rules = [name for name, mask in room.ruling(signature).required.items() if not mask[row]]
        return Refusal(f"is not what rule {listed(rules)} requires", room.world.book.reads_now)
