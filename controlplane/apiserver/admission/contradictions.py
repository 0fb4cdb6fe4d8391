"""Constraints which contradict themselves on any targets are refused. A lack of present targets is no contradiction."""

from __future__ import annotations

import math
from collections.abc import Sequence

from controlplane.apiserver.admission.fields import at
from controlplane.model.errors import Invalid
from controlplane.model.job import Constraint, Job

_NEEDS_A_VALUE = ("In", "Exists", "Gt", "Lt")


def in_job(job: Job, path: str) -> None:
    if job.constraints is not None:
        _hard(job.constraints.hard, at(path, "constraints.hard"))
    wanted = {_selector(constraint): position for position, constraint in enumerate(job.affinity)}
    for position, constraint in enumerate(job.anti_affinity):
        if _selector(constraint) in wanted:
            rule = f"is the same selector as affinity[{wanted[_selector(constraint)]}]"
            raise Invalid(f"{at(path, 'anti_affinity')}[{position}]", rule)
    _tiers(job.prefer, at(path, "prefer"))


def _selector(constraint: Constraint) -> tuple[str, str, frozenset[str]]:
    return constraint.label, constraint.op, frozenset(constraint.values)


def _tiers(tiers: Sequence[Sequence[str]], field: str) -> None:
    seen: dict[str, int] = {}
    for position, tier in enumerate(tiers):
        for index, target in enumerate(tier):
            if target in seen:
                raise Invalid(f"{field}[{position}][{index}]", f"{target!r} is in tier {seen[target]} already")
        seen.update(dict.fromkeys(tier, position))


def _hard(constraints: Sequence[Constraint], field: str) -> None:
    for position, constraint in enumerate(constraints):
        same = [other for other in constraints[: position + 1] if other.label == constraint.label]
        if len(same) > 1 and _impossible(same):
            rule = f"contradicts what comes before it: no value of {constraint.label!r} keeps all of them"
            raise Invalid(f"{field}[{position}]", rule)


def _impossible(constraints: Sequence[Constraint]) -> bool:
    """Whether no value of their label satisfies all the constraints."""
    operators = {constraint.op for constraint in constraints}
    if "DoesNotExist" in operators:
        return not operators.isdisjoint(_NEEDS_A_VALUE)
    above = max((float(constraint.values[0]) for constraint in constraints if constraint.op == "Gt"), default=-math.inf)
    below = min((float(constraint.values[0]) for constraint in constraints if constraint.op == "Lt"), default=math.inf)
    allowed = [set(constraint.values) for constraint in constraints if constraint.op == "In"]
    if not allowed:
        return above >= below
    refused = {value for constraint in constraints if constraint.op == "NotIn" for value in constraint.values}
    return above >= below or not set.intersection(*allowed) - refused
