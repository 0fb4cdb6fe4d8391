"""Supposing: the world with some fulfilments added and others over. Pure; no result is written.

All inputs of a decision are carried along: the room of targets, the holders of unique resources, the usage of each
owner, the tasks counted by limiting rules, and the targets of orders whose tasks keep apart.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from controlplane.cache.target_ledger import neighbour_kind
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
    """The world after the change. `limits` names, by fulfilment, the rules which count the fulfilment, once for each
    task; `apart` are the added fulfilments whose tasks keep apart from other tasks of their order."""
    counted = Counter(world.limited)
    for fulfilment in added:
        counted.update(limits.get(fulfilment.id, ()))
    for fulfilment in removed:
        counted.subtract(limits.get(fulfilment.id, ()))
    return replace(
        world,
        targets=_rows(world.targets, added, removed),
        held=_held(world.held, added, removed),
        owners=_owners(world.owners, added, removed),
        limited={name: count for name, count in counted.items() if count > 0},
        spread=_spread(world.spread, [fulfilment for fulfilment in added if fulfilment.id in set(apart)], removed),
    )


def _rows(
    rows: tuple[TargetRow, ...], added: Sequence[Fulfilment], removed: Sequence[Fulfilment]
) -> tuple[TargetRow, ...]:
    there: dict[str, tuple[list[Fulfilment], list[Fulfilment]]] = {}
    for fulfilment in added:
        there.setdefault(fulfilment.target, ([], []))[0].append(fulfilment)
    for fulfilment in removed:
        there.setdefault(fulfilment.target, ([], []))[1].append(fulfilment)
    return tuple(_row(row, *there[row.name]) if row.name in there else row for row in rows)


def _row(row: TargetRow, added: list[Fulfilment], removed: list[Fulfilment]) -> TargetRow:
    free: dict[str, Number] = dict(row.free)
    kinds, live = Counter(row.kinds), row.live
    gone = [fulfilment for fulfilment in removed if fulfilment.id in live]
    for sign, some in ((1, added), (-1, gone)):
        for fulfilment in some:
            live = live.set(fulfilment.id, fulfilment) if sign > 0 else live.delete(fulfilment.id)
            kinds[neighbour_kind(fulfilment.traits)] += sign * len(fulfilment.tasks)
            for name, amount in fulfilment.requests.items():
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
    claims = dict(held)
    for fulfilment in removed:
        for name in fulfilment.holds:
            claims.pop(name, None)
    for fulfilment in added:
        for name in fulfilment.holds:
            claims[name] = Claim(
                resource=name,
                fulfilment=fulfilment.id,
                order=fulfilment.order,
                target=fulfilment.target,
                epoch=fulfilment.epoch,
            )
    return claims


def _owners(
    owners: Mapping[str, tuple[int, Mapping[str, Number]]], added: Iterable[Fulfilment], removed: Iterable[Fulfilment]
) -> dict[str, tuple[int, Mapping[str, Number]]]:
    usage = dict(owners)
    for sign, some in ((1, added), (-1, removed)):
        for fulfilment in some:
            tasks, used = usage.get(fulfilment.owner, (0, {}))
            more = dict(used)
            for name, amount in fulfilment.requests.items():
                more[name] = whole(round(more.get(name, 0) + sign * amount, 9))
            usage[fulfilment.owner] = (tasks + sign * len(fulfilment.tasks), more)
    return {owner: use for owner, use in usage.items() if use[0] > 0}


def _spread(
    spread: Mapping[str, Mapping[str, frozenset[str]]], added: Iterable[Fulfilment], removed: Iterable[Fulfilment]
) -> dict[str, Mapping[str, frozenset[str]]]:
    targets = {order: dict(there) for order, there in spread.items()}
    for fulfilment in added:
        there = targets.setdefault(fulfilment.order, {})
        there[fulfilment.target] = there.get(fulfilment.target, frozenset()) | {fulfilment.id}
    for fulfilment in removed:
        ids = targets.get(fulfilment.order, {}).get(fulfilment.target, frozenset())
        if fulfilment.id in ids:
            left = ids - {fulfilment.id}
            if left:
                targets[fulfilment.order][fulfilment.target] = left
            else:
                del targets[fulfilment.order][fulfilment.target]
    return dict(targets)
