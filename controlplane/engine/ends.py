"""Ends: when the work on targets is over at the latest, as columns.

The end of a fulfilment is known when all tasks have a time limit, or when the fulfilment is being stopped, which counts
as now. A fulfilment without a known end counts as staying for ever. Tasks placed by the cycle itself have no entry in
these columns: such tasks count as staying too.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from controlplane.cache.target_ledger import NeighbourKind, neighbour_kind
from controlplane.model import times
from controlplane.model.errors import Invalid
from controlplane.model.fulfilment import Fulfilment
from controlplane.model.quantity import Number

Vector = NDArray[np.float64]
Integers = NDArray[np.int64]
Mask = NDArray[np.bool_]
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
# Sorts behind every known end.
_NEVER = np.iinfo(np.int64).max


def ends_in(fulfilment: Fulfilment, now: datetime) -> float | None:
    """In how many seconds the fulfilment is over at the latest; None when the end is unknown."""
    end = _end_of(fulfilment)
    return None if end == _NEVER else max(0, end - _microseconds(now)) / 1e6


def longest(fulfilment: Fulfilment) -> Number | None:
    """The longest time limit of the tasks of the fulfilment; None when a task has no time limit."""
    limits = [spec.time_limit for spec in fulfilment.jobs.values()]
    return max((limit for limit in limits if limit is not None), default=None) if None not in limits else None


def _end_of(fulfilment: Fulfilment) -> int:
    """The end in microseconds since 1970, so that sums are exact; 0 for a fulfilment being stopped."""
    if fulfilment.want == "stop":
        return 0
    limit = longest(fulfilment)
    if limit is None or not fulfilment.created:
        return _NEVER
    try:
        begun = times.parse(fulfilment.created, "created")
    except Invalid:
        # A record edited by hand: waiting work must not fail because of the unreadable time.
        return _NEVER
    return _microseconds(begun) + round(float(limit) * 1e6)


def _microseconds(moment: datetime) -> int:
    return (moment - _EPOCH) // _MICROSECOND


@dataclass(frozen=True)
class RowEnds:
    """The fulfilments of a target, the first end first; with the amounts of each quantity held by each fulfilment."""

    fulfilments: tuple[Fulfilment, ...]
    ends: Integers
    tasks: Integers

    @classmethod
    def of(cls, live: Iterable[Fulfilment]) -> RowEnds:
        ordered = sorted((_end_of(fulfilment), fulfilment.id, fulfilment) for fulfilment in live)
        ends = np.array([end for end, _, _ in ordered], dtype=np.int64)
        tasks = np.array([len(fulfilment.tasks) for _, _, fulfilment in ordered], dtype=np.int64)
        return cls(tuple(fulfilment for _, _, fulfilment in ordered), ends, tasks)

    @cached_property
    def amounts(self) -> dict[str, Vector]:
        names = {name for fulfilment in self.fulfilments for name in fulfilment.requests}
        return {
            name: np.array(
                [float(fulfilment.requests.get(name, 0)) for fulfilment in self.fulfilments], dtype=np.float64
            )
            for name in names
        }

    @cached_property
    def freed(self) -> dict[str, Vector]:
        """Of each quantity the amount free again when a fulfilment and all fulfilments before are over."""
        return {name: amounts.cumsum() for name, amounts in self.amounts.items()}

    @cached_property
    def kinds(self) -> tuple[NeighbourKind, ...]:
        return tuple(neighbour_kind(fulfilment.traits) for fulfilment in self.fulfilments)


class Ends:
    """All fulfilments of all targets, target by target, the first end first. `rows` is the target of each fulfilment,
    `when` the end in seconds from now, infinite when the end is unknown; `turn` counts from 1 on each target."""

    def __init__(self, rows: Sequence[RowEnds], now: datetime) -> None:
        self._of = rows
        sizes = [len(row.fulfilments) for row in rows]
        self.rows = np.repeat(np.arange(len(rows)), sizes)
        starts = np.repeat(np.cumsum([0, *sizes[:-1]]) if sizes else np.zeros(0, dtype=np.int64), sizes)
        self.turn: Integers = np.arange(len(self.rows)) - starts + 1
        ends = _integers(row.ends for row in rows)
        left = np.maximum(ends - _microseconds(now), 0) / 1e6
        self.when: Vector = np.where(ends == _NEVER, np.inf, left)
        self.stopping: Mask = ends == 0
        self._freed: dict[str, Vector] = {}
        self._amounts: dict[str, Vector] = {}

    @cached_property
    def tasks(self) -> Integers:
        return _integers(row.tasks for row in self._of)

    @cached_property
    def fulfilments(self) -> list[Fulfilment]:
        return [fulfilment for row in self._of for fulfilment in row.fulfilments]

    @cached_property
    def kinds(self) -> tuple[list[NeighbourKind], Integers]:
        """Every neighbour kind once, and for each fulfilment the position of the fulfilment's kind."""
        codes: dict[NeighbourKind, int] = {}
        each = [codes.setdefault(kind, len(codes)) for row in self._of for kind in row.kinds]
        return list(codes), np.array(each, dtype=np.int64)

    def those(self, ids: Iterable[str]) -> Mask:
        """The fulfilments with these identities."""
        mask = np.zeros(len(self.rows), dtype=bool)
        mask[[at for identity in ids if (at := self._positions.get(identity)) is not None]] = True
        return mask

    @cached_property
    def _positions(self) -> dict[str, int]:
        return {fulfilment.id: at for at, fulfilment in enumerate(self.fulfilments)}

    @cached_property
    def moments(self) -> Vector:
        """Now, and every moment at which a fulfilment is over, in seconds from now."""
        return np.unique(np.concatenate([[0.0], self.when[np.isfinite(self.when)]]))

    def freed(self, name: str) -> Vector:
        """The amount free again on the target when a fulfilment and all fulfilments before on the target are over."""
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
