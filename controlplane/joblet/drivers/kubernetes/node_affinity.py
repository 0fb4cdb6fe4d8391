"""The nodes of a cluster that a pod may run on: node affinity and tolerations, from the constraints of its jobs.
Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from controlplane.model.job import Constraint, Constraints, Toleration

_DEFAULT_WEIGHT = 50


def affinity_of(wanted: Iterable[Constraints | None]) -> dict[str, Any]:
    """Hard constraints must hold, soft ones add their weight. Operators mean the same on both sides."""
    given = [constraints for constraints in wanted if constraints is not None]
    hard = _distinct(constraint for constraints in given for constraint in constraints.hard)
    soft = _distinct(constraint for constraints in given for constraint in constraints.soft)
    affinity: dict[str, Any] = {}
    if hard:
        terms = [{"matchExpressions": [_expression(constraint) for constraint in hard]}]
        affinity["requiredDuringSchedulingIgnoredDuringExecution"] = {"nodeSelectorTerms": terms}
    preferred = [
        {"weight": weight, "preference": {"matchExpressions": [_expression(constraint)]}}
        for constraint in soft
        if (weight := _weight(constraint)) > 0
    ]
    if preferred:
        affinity["preferredDuringSchedulingIgnoredDuringExecution"] = preferred
    return affinity


def tolerations_of(wanted: Iterable[Sequence[Toleration]]) -> list[dict[str, Any]]:
    distinct = dict.fromkeys(toleration for tolerations in wanted for toleration in tolerations)
    return [_toleration(toleration) for toleration in distinct]


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


def _toleration(toleration: Toleration) -> dict[str, Any]:
    fields: dict[str, Any] = {
        "key": toleration.key,
        "operator": toleration.op,
        "value": toleration.value,
        "effect": toleration.effect,
    }
    given = {name: value for name, value in fields.items() if value}
    if toleration.seconds is not None:
        given["tolerationSeconds"] = int(toleration.seconds)
    return given
