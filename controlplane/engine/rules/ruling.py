"""Rulings: the effects of the rules on tasks with the same facts, over a row of targets. Values only, built by the
book."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Mask = NDArray[np.bool_]
Scores = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class RuleError:
    """The first failure of a rule in a ruling; `target` is None when the rule fails regardless of the target."""

    rule: str
    target: str | None
    message: str

    def __str__(self) -> str:
        where = f" on {self.target}" if self.target is not None else ""
        return f"rule {self.rule} failed{where} and counts as not matching: {self.message}"


@dataclass(frozen=True, slots=True)
class Limit:
    """At most `most` tasks for which the rule holds are live at a time; `mask` marks the targets where the rule
    holds."""

    name: str
    most: int
    mask: Mask


@dataclass(frozen=True, slots=True, eq=False)
class Ruling:
    """Arrays have an entry for each target, in the given order, and cannot be written.

    forbidden: for each rule which forbids some target, the forbidden targets. required: for each requiring rule which
    concerns the task, the targets which satisfy the rule. prefer: the sum of weights / 100. priority: the amount added
    to the priority. limits: limiting rules which hold on some target. errors: at most a single error for each rule.
    """

    forbidden: Mapping[str, Mask]
    required: Mapping[str, Mask]
    prefer: Scores
    priority: int = 0
    limits: tuple[Limit, ...] = ()
    errors: tuple[RuleError, ...] = ()
