"""Forbidding rules: rules which forbid targets."""

from __future__ import annotations

from collections.abc import Iterable

from controlplane.engine import reason_codes
from controlplane.engine.arrays import Mask, Rows
from controlplane.engine.filters.room_filter import Refusal, RoomFilter
from controlplane.engine.filters.wording import listed
from controlplane.engine.room import Room
from controlplane.engine.signature import Signature


class ForbiddingRules(RoomFilter):
    code = reason_codes.RULE_FORBIDS

    def present_in(self, room: Room) -> bool:
        return room.ruled

    def refused(self, room: Room, signature: Signature, rows: Rows) -> Iterable[Mask]:
        return (mask[rows] for mask in room.ruling(signature).forbidden.values())

    def why(self, room: Room, signature: Signature, row: int) -> Refusal:
        rules = [name for name, mask in room.ruling(signature).forbidden.items() if mask[row]]
        return Refusal(f"is forbidden by rule {listed(rules)}", room.world.book.reads_now)
