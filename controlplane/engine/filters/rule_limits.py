"""Limits of rules: a rule may limit the number of live tasks on the targets where the rule holds."""

from __future__ import annotations

from collections.abc import Iterable

from controlplane.engine import reason_codes
from controlplane.engine.arrays import Mask, Rows
from controlplane.engine.filters.room_filter import Refusal, RoomFilter
from controlplane.engine.filters.wording import listed
from controlplane.engine.room import Room
from controlplane.engine.signature import Signature


class RuleLimits(RoomFilter):
    code = reason_codes.LIMIT

    def present_in(self, room: Room) -> bool:
        return room.ruled

    def refused(self, room: Room, signature: Signature, rows: Rows) -> Iterable[Mask]:
        return (limit.mask[rows] for limit in room.ruling(signature).limits if room.left_of(limit) <= 0)

    def why(self, room: Room, signature: Signature, row: int) -> Refusal:
        limits = [limit for limit in room.ruling(signature).limits if limit.mask[row]]
        used = [f"{limit.name} ({room.limited.get(limit.name, 0)} of {limit.most})" for limit in limits]
        text = f"would take it, but not beyond the limit of rule {listed(used)}"
        return Refusal(text, waiting_helps=all(limit.most > 0 for limit in limits))
