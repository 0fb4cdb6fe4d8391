"""Affinity: a job with affinity constraints runs beside jobs with matching labels."""

from __future__ import annotations

from collections.abc import Iterable

from controlplane.engine import reason_codes
from controlplane.engine.arrays import Mask, Rows
from controlplane.engine.filters.room_filter import Refusal, RoomFilter
from controlplane.engine.filters.wording import listed, selector
from controlplane.engine.room import Room
from controlplane.engine.signature import Signature


class Affinity(RoomFilter):
    code = reason_codes.AFFINITY

    def asked_by(self, signature: Signature) -> bool:
        return bool(signature.affinity)

    def refused(self, room: Room, signature: Signature, rows: Rows) -> Iterable[Mask]:
        if not room.neighbours.founds(signature):
            for constraint in signature.affinity:
                yield ~room.neighbours.having(constraint)[rows]

    def why(self, room: Room, signature: Signature, row: int) -> Refusal:
        company = listed(map(selector, signature.affinity))
        return Refusal(f"runs no job with {company}, beside which it must be", waiting_helps=True)
