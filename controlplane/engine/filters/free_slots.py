"""Free slots: a target runs at most `max_fulfilments` fulfilments at a time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from controlplane.engine import reason_codes
from controlplane.engine.arrays import Mask, Rows
from controlplane.engine.filters.free_amounts import MOST_HOLDERS
from controlplane.engine.filters.room_filter import Refusal, RoomFilter
from controlplane.engine.room import Room
from controlplane.engine.signature import Signature

SLOTS = "fulfilments"


class FreeSlots(RoomFilter):
    code = reason_codes.FULL
    ends_with_other_work = True

    def present_in(self, room: Room) -> bool:
        return room.slotted

    def refused(self, room: Room, signature: Signature, rows: Rows) -> Iterable[Mask]:
        yield room.at(room.slots, rows) <= 0

    def why(self, room: Room, signature: Signature, row: int) -> Refusal:
        live, slots = room.world.targets[row].live, int(room.slots[row])
        orders = Counter(fulfilment.order for fulfilment in live.values())
        ranked = sorted(orders.items(), key=lambda pair: (-pair[1], pair[0]))
        return Refusal(
            f"runs as many fulfilments as it may ({len(live)})",
            waiting_helps=True,
            need={SLOTS: 1},
            have={SLOTS: slots},
            missing={SLOTS: 1 - slots},
            held_by=tuple(order for order, _ in ranked[:MOST_HOLDERS]),
        )
