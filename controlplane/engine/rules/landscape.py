"""The targets of a ruling: which targets look alike to a condition, so that the condition is evaluated once for each
kind of target."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, TypeVar

import numpy as np
from numpy.typing import NDArray

from controlplane.engine.rules import growth, schema
from controlplane.engine.rules.compile import TARGET, Conjunct, Failure
from controlplane.engine.rules.facts import Facts, TargetFacts
from controlplane.engine.rules.ruling import Ruling
from controlplane.engine.rules.schema import Path, Value

A = TypeVar("A", bound=NDArray[np.generic])
Values = tuple[Value, ...]
Ask = Callable[[Values], bool | Failure]

MOST_RULINGS: Final = 16384
_MOST_COLUMNS: Final = 4096


@dataclass(frozen=True, slots=True, eq=False)
class Column:
    """The outcome of a condition on each target: the condition holds, failed (and does not hold), or is false."""

    holds: NDArray[np.bool_]
    failed: NDArray[np.bool_]
    outcomes: tuple[bool | Failure, ...]
    codes: NDArray[np.intp]

    def failure_at(self, row: int) -> Failure | None:
        outcome = self.outcomes[self.codes[row]]
        return outcome if isinstance(outcome, Failure) else None


class Landscape:
    """Targets in their order, with the rulings and columns computed for them; kept answers never change."""

    def __init__(self, targets: tuple[TargetFacts, ...]) -> None:
        self.targets = targets
        self.rulings: dict[tuple[Facts, Values], Ruling] = {}
        self._arrays: dict[tuple[str, bytes], NDArray[np.generic]] = {}
        self._kinds: dict[tuple[Path, ...], tuple[tuple[Values, ...], NDArray[np.intp]]] = {}
        self._columns: dict[tuple[Conjunct, Values], Column] = {}
        self.everywhere = self.shared(np.ones(len(targets), dtype=np.bool_))
        self.nowhere = self.shared(np.zeros(len(targets), dtype=np.bool_))

    def keep(self, key: tuple[Facts, Values], ruling: Ruling) -> Ruling:
        if len(self.rulings) >= MOST_RULINGS:
            self.rulings.clear()
            self._arrays.clear()
        self.rulings[key] = ruling
        return ruling

    def shared(self, array: A) -> A:
        """The array, or an equal array kept before: most rulings share most of their arrays."""
        array.flags.writeable = False
        return self._arrays.setdefault((array.dtype.char, array.tobytes()), array)  # type: ignore[return-value]

    def column(self, condition: Conjunct, known: Values, ask: Ask) -> Column:
        """The outcomes of the condition. `known` are the values common to all targets; `ask` is called with the values
        of the paths of the target."""
        column = self._columns.get((condition, known))
        if column is None:
            column = self._column(condition, ask)
            if len(self._columns) >= _MOST_COLUMNS:
                self._columns.clear()
            self._columns[condition, known] = column
        return column

    def _column(self, condition: Conjunct, ask: Ask) -> Column:
        kinds, codes = self._kinds_for(tuple(path for path in condition.paths if path[0] == TARGET))
        if condition.steps * len(kinds) > growth.MOST_COLUMN_STEPS:
            failure = Failure(f"takes too long on {len(kinds)} different targets; make it simpler")
            outcomes: tuple[bool | Failure, ...] = (failure,) * len(kinds)
        else:
            outcomes = tuple(ask(values) for values in kinds)
        holds = np.array([outcome is True for outcome in outcomes], dtype=np.bool_)
        failed = np.array([isinstance(outcome, Failure) for outcome in outcomes], dtype=np.bool_)
        return Column(self.shared(holds[codes]), self.shared(failed[codes]), outcomes, codes)

    def _kinds_for(self, paths: tuple[Path, ...]) -> tuple[tuple[Values, ...], NDArray[np.intp]]:
        """The different values of the targets at these paths, and for each target the position of the target's
        values."""
        kinds = self._kinds.get(paths)
        if kinds is None:
            seen: dict[Values, int] = {}
            codes = [
                seen.setdefault(tuple(schema.read(path, target) for path in paths), len(seen))
                for target in self.targets
            ]
            kinds = self._kinds[paths] = tuple(seen), np.array(codes, dtype=np.intp)
        return kinds
