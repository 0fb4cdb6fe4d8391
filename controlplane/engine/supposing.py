"""Supposing: the world as it would be with some fulfilments more and others over. Pure; nothing is written anywhere.

Everything that a decision reads is carried along: the room of targets, who holds what, what each owner has, what rules
that limit count, and which targets an order that keeps its tasks apart is on.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from controlplane.cache.target_ledger import kind_of
from controlplane.engine.world import TargetRow, World
from controlplane.model.fulfilment import Claim, Fulfilment
from controlplane.model.quantity import Number, whole

_NO_LIMITS: Mapping[str, Sequence[str]] = {}


def after(
    world: World,
    *,
    added: Sequence[Fulfilment] = (),
    removed: Sequence[Fulfilment] = (),
    limits: Mapping[str, Sequence[str]] = _NO_LIMITS,
    apart: Iterable[str] = (),
) -> World:
    """`limits` names, by fulfilment, the rules that count it, once for each of its tasks; `apart` are those of the
    added fulfilments whose tasks keep away from others of their order."""
    counted = Counter(world.limited)
    for one in added:
        counted.update(limits.get(one.id, ()))
    for one in removed:
        counted.subtract(limits.get(one.id, ()))
    return replace(
        world,
        targets=_rows(world.targets, added, removed),
        held=_held(world.held, added, removed),
        owners=_owners(world.owners, added, removed),
        limited={name: count for name, count in counted.items() if count > 0},
        spread=_spread(world.spread, [one for one in added if one.id in set(apart)], removed),
    )


def _rows(
    rows: tuple[TargetRow, ...], added: Sequence[Fulfilment], removed: Sequence[Fulfilment]
) -> tuple[TargetRow, ...]:
    there: dict[str, tuple[list[Fulfilment], list[Fulfilment]]] = {}
    for one in added:
        there.setdefault(one.target, ([], []))[0].append(one)
    for one in removed:
        there.setdefault(one.target, ([], []))[1].append(one)
    return tuple(_row(row, *there[row.name]) if row.name in there else row for row in rows)


def _row(row: TargetRow, added: list[Fulfilment], removed: list[Fulfilment]) -> TargetRow:
    free: dict[str, Number] = dict(row.free)
    kinds, live = Counter(row.kinds), row.live
    gone = [one for one in removed if one.id in live]
    for sign, some in ((1, added), (-1, gone)):
        for one in some:
            live = live.set(one.id, one) if sign > 0 else live.delete(one.id)
            kinds[kind_of(one.traits)] += sign * len(one.tasks)
            for name, amount in one.requests.items():
                if name in free:
                    free[name] = whole(round(free[name] - sign * amount, 9))
    return replace(
        row,
        live=live,
        free=free,
        kinds={kind: count for kind, count in kinds.items() if count > 0},
        slots=None if row.slots is None else row.slots - len(added) + len(gone),
    )


def _held(
    held: Mapping[str, Claim | None], added: Iterable[Fulfilment], removed: Iterable[Fulfilment]
) -> dict[str, Claim | None]:
    found = dict(held)
    for one in removed:
        for name in one.holds:
            found.pop(name, None)
    for one in added:
        for name in one.holds:
            found[name] = Claim(resource=name, fulfilment=one.id, order=one.order, target=one.target, epoch=one.epoch)
    return found


def _owners(
    owners: Mapping[str, tuple[int, Mapping[str, Number]]], added: Iterable[Fulfilment], removed: Iterable[Fulfilment]
) -> dict[str, tuple[int, Mapping[str, Number]]]:
    found = dict(owners)
    for sign, some in ((1, added), (-1, removed)):
        for one in some:
            tasks, used = found.get(one.owner, (0, {}))
            more = dict(used)
            for name, amount in one.requests.items():
                more[name] = whole(round(more.get(name, 0) + sign * amount, 9))
            found[one.owner] = (tasks + sign * len(one.tasks), more)
    return {owner: use for owner, use in found.items() if use[0] > 0}


def _spread(
    spread: Mapping[str, Mapping[str, frozenset[str]]], added: Iterable[Fulfilment], removed: Iterable[Fulfilment]
) -> dict[str, Mapping[str, frozenset[str]]]:
    found = {order: dict(there) for order, there in spread.items()}
    for one in added:
        there = found.setdefault(one.order, {})
        there[one.target] = there.get(one.target, frozenset()) | {one.id}
    for one in removed:
        ids = found.get(one.order, {}).get(one.target, frozenset())
        if one.id in ids:
            left = ids - {one.id}
            if left:
                found[one.order][one.target] = left
            else:
                del found[one.order][one.target]
    return dict(found)
