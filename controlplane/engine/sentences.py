"""One target's verdict on one task, in amounts and in a sentence for a person."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

from controlplane.engine import words
from controlplane.engine.room import Room
from controlplane.engine.signature import STRICT, Signature
from controlplane.engine.world import LEAVING, TargetRow
from controlplane.model import selectors, times, windows
from controlplane.model.explanation import TargetVerdict
from controlplane.model.fulfilment import Fulfilment
from controlplane.model.job import Constraint
from controlplane.model.quantity import Number, whole

_EPSILON = 1e-9
_MOST_HOLDERS = 5
SLOTS = "fulfilments"


def verdict(room: Room, signature: Signature, row: int, reason: str | None) -> TargetVerdict:
    """`reason` is the filter that refuses; None when none does."""
    target = room.world.targets[row]
    if reason is None:
        return _of_resources(room, signature, target)
    if reason in (words.CAPACITY, words.FULL):
        return _of_room(room, signature, target, row, reason)
    if reason == words.RESERVED:
        return _reserved(room, target, row)
    text, helps = _WHY[reason](room, signature, target, row)
    return TargetVerdict(
        target=target.name, fits=False, filter=reason, waiting_helps=helps, sentence=f"{target.name} {text}"
    )


def _of_resources(room: Room, signature: Signature, target: TargetRow) -> TargetVerdict:
    """It would go there, unless somebody holds what only one may have."""
    held = [name for name in signature.unique if name in room.held]
    if not held:
        return TargetVerdict(target=target.name, fits=True, sentence=f"{target.name} takes it")
    claims = [room.world.held.get(name) for name in held]
    holders = tuple(dict.fromkeys(claim.order for claim in claims if claim is not None))
    return TargetVerdict(
        target=target.name,
        fits=False,
        filter=words.HELD,
        held_by=holders,
        waiting_helps=True,
        sentence=f"{target.name} would take it, but {_listed(held)} is held by {_listed(holders) or 'somebody'}",
    )


def _of_room(room: Room, signature: Signature, target: TargetRow, row: int, reason: str) -> TargetVerdict:
    need: dict[str, Number] = dict(signature.needs)
    have: dict[str, Number] = {
        name: whole(round(float(room.free[name][row]), 9)) if name in room.free else 0 for name in need
    }
    if reason == words.FULL:
        need, have = {SLOTS: 1}, {SLOTS: int(room.slots[row])}
    missing = {name: whole(round(need[name] - have[name], 9)) for name in need if need[name] > have[name] + _EPSILON}
    small = [name for name in missing if name != SLOTS and target.capacity.get(name, 0) + _EPSILON < need[name]]
    holders = holders_of(target.live.values(), missing)
    return TargetVerdict(
        target=target.name,
        fits=False,
        filter=reason,
        need=need,
        have=have,
        missing=missing,
        held_by=() if small else holders,
        waiting_helps=not small,
        sentence=f"{target.name} {_room_text(target, need, have, small)}",
    )


def _reserved(room: Room, target: TargetRow, row: int) -> TargetVerdict:
    orders = tuple(dict.fromkeys(one.order for one in room.kept.beneficiaries.get(row, ())))
    who = _listed(orders[:_MOST_HOLDERS]) or "another order"
    until = _amount(max(0.0, float(room.kept.until[row])))
    return TargetVerdict(
        target=target.name,
        fits=False,
        filter=words.RESERVED,
        held_by=orders[:_MOST_HOLDERS],
        waiting_helps=True,
        sentence=f"{target.name} is kept for {who}, which goes first and begins there in {until} seconds at the latest",
    )


def _room_text(target: TargetRow, need: Mapping[str, Number], have: Mapping[str, Number], small: list[str]) -> str:
    if small:
        name = small[0]
        return f"has {_amount(target.capacity.get(name, 0))} {name} in all, {_amount(need[name])} is needed"
    short = [name for name in need if need[name] > have[name] + _EPSILON]
    if short == [SLOTS]:
        return f"runs as many fulfilments as it may ({len(target.live)})"
    return "has " + " and ".join(
        f"{_amount(max(have[name], 0))} {name} free, {_amount(need[name])} is needed" for name in short
    )


def holders_of(live: Iterable[Fulfilment], missing: Mapping[str, Number]) -> tuple[str, ...]:
    """The orders that have the most of what is missing."""
    held: Counter[str] = Counter()
    for fulfilment in live:
        amount = sum(float(fulfilment.requests.get(name, 0)) for name in missing) + float(SLOTS in missing)
        if amount > 0:
            held[fulfilment.order] += amount  # type: ignore[assignment]
    ranked = sorted(held.items(), key=lambda pair: (-pair[1], pair[0]))
    return tuple(order for order, _ in ranked[:_MOST_HOLDERS])


def _policy(_: Room, signature: Signature, __: TargetRow, ___: int) -> tuple[str, bool]:
    return f"is not {signature.policy.removeprefix(STRICT)}, which the target policy names", False


def _driver(_: Room, signature: Signature, target: TargetRow, __: int) -> tuple[str, bool]:
    if not signature.drivers or target.facts.driver in signature.drivers:
        return f"is run by {target.facts.driver}, which runs images, and the job names none", False
    return f"is run by {target.facts.driver or 'no driver yet'}, the job supports {_listed(signature.drivers)}", False


def _region(_: Room, signature: Signature, target: TargetRow, __: int) -> tuple[str, bool]:
    return f"is in region {target.facts.region or '(none)'}, not in {signature.region}", False


def _constraint(_: Room, signature: Signature, target: TargetRow, __: int) -> tuple[str, bool]:
    unmet = next(found for found in signature.hard if not selectors.matches(found, target.facts.labels))
    value = target.facts.labels.get(unmet.label)
    has = f"has {unmet.label}={value}" if value is not None else f"has no label {unmet.label}"
    return f"{has}, the job asks for {_selector(unmet)}", False


def _forbidden(room: Room, signature: Signature, _: TargetRow, row: int) -> tuple[str, bool]:
    ruling = room.ruling(signature)
    rules = [name for name, mask in ruling.forbidden.items() if mask[row]] if ruling is not None else []
    return f"is forbidden by rule {_listed(rules)}", room.world.book.reads_now


def _required(room: Room, signature: Signature, _: TargetRow, row: int) -> tuple[str, bool]:
    ruling = room.ruling(signature)
    rules = [name for name, mask in ruling.required.items() if not mask[row]] if ruling is not None else []
    return f"is not what rule {_listed(rules)} requires", room.world.book.reads_now


_PHASES = {
    "Provisioning": "it is Provisioning, no joblet has come for it yet",
    "Ready": "its joblet is still stopping old work",
    "Suspect": "it is Suspect, its joblet has fallen silent",
    "Failed": "it is Failed, its joblet is gone or still stops old work",
    "Cordoned": "it is Cordoned, somebody has to uncordon it",
    "Draining": "it is Draining, what runs there may end and somebody has to uncordon it",
    "Drained": "it is Drained, somebody has to uncordon it",
    "Gone": "it is Gone",
}


# What ends only when a person acts, or never.
_FOR_GOOD = frozenset({"Cordoned", "Draining", "Drained", "Gone"})


def _not_ready(_: Room, __: Signature, target: TargetRow, ___: int) -> tuple[str, bool]:
    why = _PHASES.get(target.phase, f"it is {target.phase}")
    return f"takes no new work: {why}", target.phase not in _FOR_GOOD and not target.phase.startswith(LEAVING)


def _window(room: Room, _: Signature, target: TargetRow, __: int) -> tuple[str, bool]:
    opening = windows.next_opening(target.windows, room.world.now)
    return f"is closed until {times.show(opening)}" if opening is not None else "is never open", opening is not None


def _avoided(_: Room, __: Signature, ___: TargetRow, ____: int) -> tuple[str, bool]:
    return "is where it was before and is not to go again, as long as another target could hold it", True


def _affinity(_: Room, signature: Signature, __: TargetRow, ___: int) -> tuple[str, bool]:
    return f"runs no job with {_listed(map(_selector, signature.affinity))}, beside which it must be", True


def _anti_affinity(_: Room, signature: Signature, __: TargetRow, ___: int) -> tuple[str, bool]:
    asked = _listed(map(_selector, signature.kind.anti_affinity))
    return f"runs a job that it must be away from ({asked or 'as that job asked'})", True


def _spread(_: Room, __: Signature, ___: TargetRow, ____: int) -> tuple[str, bool]:
    return "runs a task of this order already, whose tasks must be on different targets", True


def _exclusive(_: Room, signature: Signature, __: TargetRow, ___: int) -> tuple[str, bool]:
    if signature.kind.exclusive:
        return "runs something already, and the job wants no neighbours", True
    return "runs a job that wants no neighbours", True


def _limit(room: Room, signature: Signature, _: TargetRow, row: int) -> tuple[str, bool]:
    ruling = room.ruling(signature)
    limits = [limit for limit in ruling.limits if limit.mask[row]] if ruling is not None else []
    used = [f"{limit.name} ({room.limited.get(limit.name, 0)} of {limit.most})" for limit in limits]
    return f"would take it, but not beyond the limit of rule {_listed(used)}", all(limit.most > 0 for limit in limits)


_WHY = {
    words.TARGET_POLICY: _policy,
    words.DRIVER: _driver,
    words.REGION: _region,
    words.CONSTRAINT: _constraint,
    words.RULE_FORBIDS: _forbidden,
    words.RULE_REQUIRES: _required,
    words.NOT_READY: _not_ready,
    words.WINDOW: _window,
    words.AVOIDED: _avoided,
    words.AFFINITY: _affinity,
    words.ANTI_AFFINITY: _anti_affinity,
    words.SPREAD: _spread,
    words.EXCLUSIVE: _exclusive,
    words.LIMIT: _limit,
}


def _selector(constraint: Constraint) -> str:
    return " ".join((constraint.label, constraint.op, ", ".join(constraint.values))).strip()


def _listed(names: Iterable[str]) -> str:
    return ", ".join(names)


def _amount(amount: Number) -> str:
    return f"{whole(round(amount, 3))}"
