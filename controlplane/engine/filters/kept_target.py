"""Kept targets: a target kept for work which goes first is closed to work which would delay the first work."""

from __future__ import annotations

from collections.abc import Iterable

from controlplane.engine import reason_codes
from controlplane.engine.arrays import Mask, Rows
from controlplane.engine.filters.free_amounts import MOST_HOLDERS
from controlplane.engine.filters.room_filter import Refusal, RoomFilter
from controlplane.engine.filters.wording import listed, shown
from controlplane.engine.room import Room
from controlplane.engine.signature import Signature


class KeptTarget(RoomFilter):
    code = reason_codes.RESERVED
    ends_with_other_work = True

    def present_in(self, room: Room) -> bool:
        return room.kept.any

    def refused(self, room: Room, signature: Signature, rows: Rows) -> Iterable[Mask]:
        yield room.kept.closed(signature, rows)

    def why(self, room: Room, signature: Signature, row: int) -> Refusal:
        beneficiaries = room.kept.beneficiaries.get(row, ())
        orders = tuple(dict.fromkeys(each.order for each in beneficiaries))[:MOST_HOLDERS]
        who = listed(orders) or "another order"
        until = shown(max(0.0, float(room.kept.until[row])))
        text = f"is kept for {who}, which goes first and begins there in {until} seconds at the latest"
        return Refusal(text, waiting_helps=True, held_by=orders)
