"""Conditions evaluated on facts, a moment and targets, each condition only once for the same values of the fields
read."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

import numpy as np

from controlplane.engine.rules import schema
from controlplane.engine.rules.compile import NOW, TARGET, Conjunct, Failure
from controlplane.engine.rules.facts import Facts
from controlplane.engine.rules.landscape import Column, Landscape, Values
from controlplane.engine.rules.ruling import Mask
from controlplane.engine.rules.schema import Path

MOST_KEPT: Final = 65536


@dataclass(frozen=True, slots=True)
class Case:
    """The facts of a task and the parts of the time read by some rule."""

    facts: Facts
    now: Values


@dataclass(frozen=True, slots=True, eq=False)
class Weighed:
    """The targets on which all conditions hold; and the first target on which a condition failed, with the failure."""

    holds: Mask
    failed_at: str | None = None
    failure: Failure | None = None


class Conditions:
    """Evaluates conditions and keeps the answers, up to a bound; forgotten answers are computed again."""

    def __init__(self, paths: Iterable[Path]) -> None:
        read = sorted(set(paths))
        self.task_paths = tuple(path for path in read if path[0] not in (TARGET, NOW))
        self.now_paths = tuple(path for path in read if path[0] == NOW)
        self._places = {path: place for place, path in enumerate(self.task_paths)}
        self._now_places = {path: place for place, path in enumerate(self.now_paths)}
        self._outcomes: dict[tuple[Conjunct, Values], bool | Failure] = {}

    def case(self, facts: Facts, now: datetime) -> Case:
        return Case(facts, tuple(schema.read_now(path, now) for path in self.now_paths))

    def hold(self, conditions: Iterable[Conjunct], case: Case) -> bool | Failure:
        """Whether conditions which do not read the target hold. As in CEL, a false condition hides the failure of
        another condition."""
        failure: Failure | None = None
        for part in conditions:
            outcome = self._ask(part, self._known(part, case))
            if outcome is False:
                return False
            if isinstance(outcome, Failure):
                failure = failure or outcome
        return failure or True

    def weigh(self, conditions: Sequence[Conjunct], case: Case, land: Landscape) -> Weighed:
        task = self.hold((part for part in conditions if not part.speaks_of(TARGET)), case)
        if task is False:
            return Weighed(land.nowhere)
        columns = [self._column(part, case, land) for part in conditions if part.speaks_of(TARGET)]
        holds = not_false = land.everywhere
        for column in columns:
            holds = holds & column.holds
            not_false = not_false & (column.holds | column.failed)
        if isinstance(task, Failure):
            return Weighed(land.nowhere, None, task if not_false.any() or not columns else None)
        failed = np.flatnonzero(not_false & ~holds)
        if not failed.size:
            return Weighed(land.shared(holds))
        failure = next(
            failed_with for column in columns if (failed_with := column.failure_at(int(failed[0]))) is not None
        )
        return Weighed(land.shared(holds), land.targets[failed[0]].name, failure)

    def _column(self, part: Conjunct, case: Case, land: Landscape) -> Column:
        values = self._known(part, case)
        return land.column(part, values, lambda of_target: self._ask(part, values + of_target))

    def _known(self, part: Conjunct, case: Case) -> Values:
        """The values of the paths which do not read the target: always the first paths, since paths are sorted."""
        return tuple(
            case.now[self._now_places[path]] if path[0] == NOW else case.facts.values[self._places[path]]
            for path in part.paths
            if path[0] != TARGET
        )

    def _ask(self, part: Conjunct, values: Values) -> bool | Failure:
        outcome = self._outcomes.get((part, values))
        if outcome is None:
            outcome = part.holds(dict(zip(part.paths, values, strict=True)))
            if len(self._outcomes) >= MOST_KEPT:
                self._outcomes.clear()
            self._outcomes[part, values] = outcome
        return outcome
