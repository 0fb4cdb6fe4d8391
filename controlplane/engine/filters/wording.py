"""Wording: names, amounts and constraints as sentences for users show them."""

from __future__ import annotations

from collections.abc import Iterable

from controlplane.model.job import Constraint
from controlplane.model.quantity import Number, whole


def selector(constraint: Constraint) -> str:
    return " ".join((constraint.label, constraint.op, ", ".join(constraint.values))).strip()


def listed(names: Iterable[str]) -> str:
    return ", ".join(names)


def shown(amount: Number) -> str:
    return f"{whole(round(amount, 3))}"
