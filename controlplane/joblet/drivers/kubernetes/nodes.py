"""On which nodes of a cluster a pod may be: node affinity and tolerations, from what its jobs say. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from controlplane.model.job import Constraint, Constraints, Toleration

_DEFAULT_WEIGHT = 50


def affinity_of(wanted: Iterable[Constraints | None]) -> dict[str, Any]:
    """Hard constraints must hold, soft ones add their weight. Operators mean the same on both sides."""
    found = [constraints for constraints in wanted if constraints is not None]
    hard = _distinct(one for constraints in found for one in constraints.hard)
    soft = _distinct(one for constraints in found for one in constraints.soft)
    affinity: dict[str, Any] = {}
    if hard:
        terms = [{"matchExpressions": [_expression(one) for one in hard]}]
        affinity["requiredDuringSchedulingIgnoredDuringExecution"] = {"nodeSelectorTerms": terms}
    preferred = [
        {"weight": weight, "preference": {"matchExpressions": [_expression(one)]}}
        for one in soft
        if (weight := _weight(one)) > 0
    ]
    if preferred:
        affinity["preferredDuringSchedulingIgnoredDuringExecution"] = preferred
    return affinity


def tolerations_of(wanted: Iterable[Sequence[Toleration]]) -> list[dict[str, Any]]:
    distinct = dict.fromkeys(one for tolerations in wanted for one in tolerations)
    return [_toleration(one) for one in distinct]


def _distinct(constraints: Iterable[Constraint]) -> list[Constraint]:
    return list(dict.fromkeys(constraints))


def _expression(constraint: Constraint) -> dict[str, Any]:
    expression: dict[str, Any] = {"key": constraint.label, "operator": constraint.op}
    if constraint.values:
        expression["values"] = list(constraint.values)
    return expression


def _weight(constraint: Constraint) -> int:
    """The cluster takes whole numbers from 1 to 100."""
    return _DEFAULT_WEIGHT if constraint.weight is None else min(100, int(-(-constraint.weight // 1)))


def _toleration(one: Toleration) -> dict[str, Any]:
    said = {"key": one.key, "operator": one.op, "value": one.value, "effect": one.effect}
    found: dict[str, Any] = {name: value for name, value in said.items() if value}
    if one.seconds is not None:
        found["tolerationSeconds"] = int(one.seconds)
    return found
