"""The verdict of a target on a task, in amounts and in a sentence for a person."""

from __future__ import annotations

from controlplane.engine import reason_codes
from controlplane.engine.filtering import FILTERS
from controlplane.engine.filters.room_filter import Refusal
from controlplane.engine.filters.static_filter import StaticFilter
from controlplane.engine.filters.wording import listed
from controlplane.engine.room import Room
from controlplane.engine.signature import Signature
from controlplane.model.explanation import TargetVerdict

_BY_CODE = {each.code: each for each in FILTERS}


def verdict(room: Room, signature: Signature, row: int, code: str | None) -> TargetVerdict:
    """The verdict of the target; `code` is the code of the refusing filter, None when no filter refuses."""
    target = room.world.targets[row]
    if code is None:
        return _of_resources(room, signature, target.name)
    refusing = _BY_CODE[code]
    if isinstance(refusing, StaticFilter):
        refusal = Refusal(refusing.why(target.facts, signature), waiting_helps=False)
    else:
        refusal = refusing.why(room, signature, row)
    return TargetVerdict(
        target=target.name,
        fits=False,
        filter=code,
        need=dict(refusal.need),
        have=dict(refusal.have),
        missing=dict(refusal.missing),
        held_by=refusal.held_by,
        waiting_helps=refusal.waiting_helps,
        sentence=f"{target.name} {refusal.text}",
    )


def _of_resources(room: Room, signature: Signature, target: str) -> TargetVerdict:
    """The target takes the task, unless another order holds a unique resource of the task."""
    held = [name for name in signature.unique if name in room.held]
    if not held:
        return TargetVerdict(target=target, fits=True, sentence=f"{target} takes it")
    claims = [room.world.held.get(name) for name in held]
    holders = tuple(dict.fromkeys(claim.order for claim in claims if claim is not None))
    return TargetVerdict(
        target=target,
        fits=False,
        filter=reason_codes.HELD,
        held_by=holders,
        waiting_helps=True,
        sentence=f"{target} would take it, but {listed(held)} is held by {listed(holders) or 'somebody'}",
    )
