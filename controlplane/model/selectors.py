"""Selectors: whether labels satisfy a constraint. Pure; an operator that admission would refuse matches no label."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

from controlplane.model.job import Constraint

OPERATORS = ("In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt")


def matches(constraint: Constraint, labels: Mapping[str, str]) -> bool:
    """An absent label satisfies NotIn and DoesNotExist; a label that is no number satisfies neither Gt nor Lt."""
    value = labels.get(constraint.label)
    match constraint.op:
        case "In":
            return value is not None and value in constraint.values
        case "NotIn":
            return value is None or value not in constraint.values
        case "Exists":
            return value is not None
        case "DoesNotExist":
            return value is None
        case "Gt":
            return _number(value) > _bound(constraint)
        case "Lt":
            return _number(value) < _bound(constraint)
    return False


def match_all(constraints: Iterable[Constraint], labels: Mapping[str, str]) -> bool:
    return all(matches(constraint, labels) for constraint in constraints)


def _bound(constraint: Constraint) -> float:
    return _number(constraint.values[0]) if len(constraint.values) == 1 else math.nan


def _number(text: str | None) -> float:
    """NaN for a text that is no number: neither above nor below any number."""
    try:
        return float(text) if text is not None else math.nan
    except ValueError:
        return math.nan
