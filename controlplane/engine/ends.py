"""Ends: when the work on targets is over at the latest, as columns.

The end of a fulfilment is known when its tasks have a time limit, or when it is being stopped, which counts as now. A
fulfilment without a known end stays for ever. Tasks that the cycle itself has placed have no entry here: they stay too.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from controlplane.cache.target_ledger import Kind, kind_of
from controlplane.model import times
from controlplane.model.errors import Invalid
from controlplane.model.fulfilment import Fulfilment
from controlplane.model.quantity import Number

Vector = NDArray[np.float64]
Integers = NDArray[np.int64]
Mask = NDArray[np.bool_]
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
# Sorts behind every end that is known.
_NEVER = np.iinfo(np.int64).max


def ends_in(fulfilment: Fulfilment, now: datetime) -> float | None:
    """In how many seconds the fulfilment is over at the latest; None when nobody knows."""
    end = _end_of(fulfilment)
    return None if end == _NEVER else max(0, end - _microseconds(now)) / 1e6


def longest(fulfilment: Fulfilment) -> Number | None:
    """The longest time limit of its tasks; None when one of them has none."""
    limits = [spec.time_limit for spec in fulfilment.jobs.values()]
    return max((limit for limit in limits if limit is not None), default=None) if None not in limits else None


def _end_of(fulfilment: Fulfilment) -> int:
    """Microseconds since 1970, so that sums are exact; 0 for a fulfilment that is being stopped."""
    if fulfilment.want == "stop":
        return 0
    limit = longest(fulfilment)
    if limit is None or not fulfilment.created:
        return _NEVER
    try:
        begun = times.parse(fulfilment.created, "created")
    except Invalid:
        # Written by hand: the work that waits for its room is not to blame.
        return _NEVER
    return _microseconds(begun) + round(float(limit) * 1e6)


def _microseconds(moment: datetime) -> int:
    return (moment - _EPOCH) // _MICROSECOND


@dataclass(frozen=True)
class RowEnds:
    """The fulfilments of one target, the first end first; of each quantity what they hold, one by one."""

    fulfilments: tuple[Fulfilment, ...]
    ends: Integers
    tasks: Integers

    @classmethod
    def of(cls, live: Iterable[Fulfilment]) -> RowEnds:
        found = sorted((_end_of(one), one.id, one) for one in live)
        ends = np.array([end for end, _, _ in found], dtype=np.int64)
        tasks = np.array([len(one.tasks) for _, _, one in found], dtype=np.int64)
        return cls(tuple(one for _, _, one in found), ends, tasks)

    @cached_property
    def amounts(self) -> dict[str, Vector]:
        names = {name for one in self.fulfilments for name in one.requests}
        return {
            name: np.array([float(one.requests.get(name, 0)) for one in self.fulfilments], dtype=np.float64)
            for name in names
        }

    @cached_property
    def freed(self) -> dict[str, Vector]:
        """Of each quantity what is free again when this fulfilment and all before it are over."""
        return {name: amounts.cumsum() for name, amounts in self.amounts.items()}

    @cached_property
    def kinds(self) -> tuple[Kind, ...]:
        return tuple(kind_of(one.traits) for one in self.fulfilments)


class Ends:
    """All fulfilments of all targets, target by target, the first end first. `rows` is the target of each one, `when`
    its end in seconds from now, infinite when nobody knows it; `turn` counts from 1 on each target."""

    def __init__(self, rows: Sequence[RowEnds], now: datetime) -> None:
        self._of = rows
        sizes = [len(one.fulfilments) for one in rows]
        self.rows = np.repeat(np.arange(len(rows)), sizes)
        starts = np.repeat(np.cumsum([0, *sizes[:-1]]) if sizes else np.zeros(0, dtype=np.int64), sizes)
        self.turn: Integers = np.arange(len(self.rows)) - starts + 1
        ends = _integers(one.ends for one in rows)
        left = np.maximum(ends - _microseconds(now), 0) / 1e6
        self.when: Vector = np.where(ends == _NEVER, np.inf, left)
        self.stopping: Mask = ends == 0
        self._freed: dict[str, Vector] = {}
        self._amounts: dict[str, Vector] = {}

    @cached_property
    def tasks(self) -> Integers:
        return _integers(one.tasks for one in self._of)

    @cached_property
    def fulfilments(self) -> list[Fulfilment]:
        return [one for row in self._of for one in row.fulfilments]

    @cached_property
    def kinds(self) -> tuple[list[Kind], Integers]:
        """Every kind once, and which one each fulfilment is of."""
        codes: dict[Kind, int] = {}
        each = [codes.setdefault(kind, len(codes)) for row in self._of for kind in row.kinds]
        return list(codes), np.array(each, dtype=np.int64)

    def those(self, ids: Iterable[str]) -> Mask:
        """The fulfilments with these identities."""
        mask = np.zeros(len(self.rows), dtype=bool)
        mask[[at for one in ids if (at := self._positions.get(one)) is not None]] = True
        return mask

    @cached_property
    def _positions(self) -> dict[str, int]:
        return {one.id: at for at, one in enumerate(self.fulfilments)}

    @cached_property
    def moments(self) -> Vector:
        """Now, and every moment at which something is over."""
        return np.unique(np.concatenate([[0.0], self.when[np.isfinite(self.when)]]))

    def freed(self, name: str) -> Vector:
        """What is free again on the target when the fulfilment and all before it there are over."""
        if name not in self._freed:
            self._freed[name] = self._column([row.freed.get(name) for row in self._of])
        return self._freed[name]

    def amounts(self, name: str) -> Vector:
        if name not in self._amounts:
            self._amounts[name] = self._column([row.amounts.get(name) for row in self._of])
        return self._amounts[name]

    def _column(self, columns: list[Vector | None]) -> Vector:
        pairs = zip(self._of, columns, strict=True)
        return np.concatenate(
            [np.zeros(0), *(np.zeros(len(row.fulfilments)) if column is None else column for row, column in pairs)]
        )


def _integers(columns: Iterable[Integers]) -> Integers:
    return np.concatenate([np.zeros(0, dtype=np.int64), *columns])
