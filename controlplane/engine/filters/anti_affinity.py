"""Anti-affinity: a job stays away from jobs with matching labels, and these jobs stay away from the job."""

from __future__ import annotations

from collections.abc import Iterable

from controlplane.engine import reason_codes
from controlplane.engine.arrays import Mask, Rows
from controlplane.engine.filters.room_filter import Refusal, RoomFilter
from controlplane.engine.filters.wording import listed, selector
from controlplane.engine.room import Room
from controlplane.engine.signature import Signature


class AntiAffinity(RoomFilter):
    code = reason_codes.ANTI_AFFINITY
    ends_with_other_work = True

    def asked_by(self, signature: Signature) -> bool:
        return bool(signature.kind.anti_affinity)

    def present_in(self, room: Room) -> bool:
        return bool(room.neighbours.repelling)

    def refused(self, room: Room, signature: Signature, rows: Rows) -> Iterable[Mask]:
        yield from (room.neighbours.having(constraint)[rows] for constraint in signature.kind.anti_affinity)
        yield from (mask[rows] for mask in room.neighbours.repelling_kind(signature.kind))

    def why(self, room: Room, signature: Signature, row: int) -> Refusal:
        asked = listed(map(selector, signature.kind.anti_affinity))
        return Refusal(f"runs a job that it must be away from ({asked or 'as that job asked'})", waiting_helps=True)
