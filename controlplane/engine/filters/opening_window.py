"""Windows: a target takes new work only while an availability window of the target is open."""

from __future__ import annotations

from collections.abc import Iterable

from controlplane.engine import reason_codes
from controlplane.engine.arrays import Mask, Rows
from controlplane.engine.filters.room_filter import Refusal, RoomFilter
from controlplane.engine.room import Room
from controlplane.engine.signature import Signature
from controlplane.model import times, windows


class OpeningWindow(RoomFilter):
    code = reason_codes.WINDOW

    def present_in(self, room: Room) -> bool:
        return not room.all_take

    def refused(self, room: Room, signature: Signature, rows: Rows) -> Iterable[Mask]:
        yield ~room.opened[rows]

    def why(self, room: Room, signature: Signature, row: int) -> Refusal:
        opening = windows.next_opening(room.world.targets[row].windows, room.world.now)
        if opening is None:
            return Refusal("is never open", waiting_helps=False)
        return Refusal(f"is closed until {times.show(opening)}", waiting_helps=True)
