"""Constraints on the nodes inside a cluster, told from those on targets by a prefix. Pure.

`{label: node/disktype, op: In, values: [ssd]}` asks for a node with the label `disktype` on whichever cluster the task
goes to. Which cluster that is, targets' own labels decide.
"""

from __future__ import annotations

from collections.abc import Iterable

from msgspec.structs import replace

from controlplane.model.job import Constraint, Constraints

PREFIX = "node/"
KUBERNETES = "kubernetes"


def is_of_node(constraint: Constraint) -> bool:
    return constraint.label.startswith(PREFIX)


def of_targets(constraints: Iterable[Constraint]) -> tuple[Constraint, ...]:
    return tuple(one for one in constraints if not is_of_node(one))


def of_nodes(constraints: Constraints | None) -> Constraints | None:
    """With the labels as nodes have them; None when nothing is said about nodes."""
    if constraints is None:
        return None
    hard, soft = (
        tuple(replace(one, label=one.label.removeprefix(PREFIX)) for one in some if is_of_node(one))
        for some in (constraints.hard, constraints.soft)
    )
    return Constraints(hard=hard, soft=soft) if hard or soft else None
