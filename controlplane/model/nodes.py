"""Constraints on the nodes inside a cluster, told apart from constraints on targets by a prefix. Pure.

`{label: node/disktype, op: In, values: [ssd]}` asks for a node with the label `disktype` in the cluster of the task.
The labels of targets decide about the cluster.
"""

from __future__ import annotations

from collections.abc import Iterable

from msgspec.structs import replace

from controlplane.model.job import Constraint, Constraints

PREFIX = "node/"


def is_of_node(constraint: Constraint) -> bool:
    return constraint.label.startswith(PREFIX)


def of_targets(constraints: Iterable[Constraint]) -> tuple[Constraint, ...]:
    return tuple(constraint for constraint in constraints if not is_of_node(constraint))


def of_nodes(constraints: Constraints | None) -> Constraints | None:
    """With the labels as nodes have them; None without constraints on nodes."""
    if constraints is None:
        return None
    hard, soft = (
        tuple(
            replace(constraint, label=constraint.label.removeprefix(PREFIX))
            for constraint in some
            if is_of_node(constraint)
        )
        for some in (constraints.hard, constraints.soft)
    )
    return Constraints(hard=hard, soft=soft) if hard or soft else None
