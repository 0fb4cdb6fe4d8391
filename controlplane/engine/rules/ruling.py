"""What the rules say of tasks with the same facts, over a row of targets. Values only, made by the book."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Mask = NDArray[np.bool_]
Scores = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class RuleError:
    """The first failure of a rule in a ruling; `target` is None when the rule fails whatever the target is."""

    rule: str
    target: str | None
    message: str

    def __str__(self) -> str:
        where = f" on {self.target}" if self.target is not None else ""
        return f"rule {self.rule} failed{where} and counts as not matching: {self.message}"


@dataclass(frozen=True, slots=True)
class Limit:
    """At most `most` tasks for which the rule holds are live at a time; `mask` says on which targets it holds."""

    name: str
    most: int
    mask: Mask


@dataclass(frozen=True, slots=True, eq=False)
class Ruling:
    """Arrays are over the targets as they were given, and cannot be written.

    forbidden: for each rule that forbids some target, which ones. required: for each rule that holds for the task,
    the targets that satisfy it. prefer: the sum of weights / 100. priority: what is added. limits: rules that hold on
    some target. errors: at most one a rule.
    """

    forbidden: Mapping[str, Mask]
    required: Mapping[str, Mask]
    prefer: Scores
    priority: int = 0
    limits: tuple[Limit, ...] = ()
    errors: tuple[RuleError, ...] = ()
