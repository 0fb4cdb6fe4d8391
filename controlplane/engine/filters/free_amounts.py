"""Free amounts: a target needs enough free of every quantity which the task requests."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping

from controlplane.engine import reason_codes
from controlplane.engine.arrays import Mask, Rows
from controlplane.engine.filters.room_filter import Refusal, RoomFilter
from controlplane.engine.filters.wording import shown
from controlplane.engine.room import Room
from controlplane.engine.signature import Signature
from controlplane.model.fulfilment import Fulfilment
from controlplane.model.quantity import EPSILON, Number, whole

MOST_HOLDERS = 5


class FreeAmounts(RoomFilter):
    code = reason_codes.CAPACITY
    ends_with_other_work = True

    def asked_by(self, signature: Signature) -> bool:
        return True

    def refused(self, room: Room, signature: Signature, rows: Rows) -> Iterable[Mask]:
        yield ~room.able(signature, rows)

    def why(self, room: Room, signature: Signature, row: int) -> Refusal:
        target = room.world.targets[row]
        need: dict[str, Number] = dict(signature.needs)
        have: dict[str, Number] = {
            name: whole(round(float(room.free[name][row]), 9)) if name in room.free else 0 for name in need
        }
        short = [name for name in need if need[name] > have[name] + EPSILON]
        missing = {name: whole(round(need[name] - have[name], 9)) for name in short}
        small = [name for name in short if target.capacity.get(name, 0) + EPSILON < need[name]]
        if small:
            in_all = target.capacity.get(small[0], 0)
            text = f"has {shown(in_all)} {small[0]} in all, {shown(need[small[0]])} is needed"
            return Refusal(text, waiting_helps=False, need=need, have=have, missing=missing)
        text = "has " + " and ".join(
            f"{shown(max(have[name], 0))} {name} free, {shown(need[name])} is needed" for name in short
        )
        holders = holders_of(target.live.values(), missing)
        return Refusal(text, waiting_helps=True, need=need, have=have, missing=missing, held_by=holders)


def holders_of(live: Iterable[Fulfilment], missing: Mapping[str, Number]) -> tuple[str, ...]:
    """The orders which hold the largest amounts of the missing quantities."""
    held: defaultdict[str, float] = defaultdict(float)
    for fulfilment in live:
        amount = sum(float(fulfilment.requests.get(name, 0)) for name in missing)
        if amount > 0:
            held[fulfilment.order] += amount
    ranked = sorted(held.items(), key=lambda pair: (-pair[1], pair[0]))
    return tuple(order for order, _ in ranked[:MOST_HOLDERS])
