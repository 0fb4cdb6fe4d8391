"""Facts: the fields of a task and of a target visible to rules, as values which can be compared and kept.

Facts hold only the fields read by some rule, so tasks of all orders with equal values of these fields share a ruling.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from controlplane.engine.rules import schema
from controlplane.engine.rules.schema import Path, Value
from controlplane.model.job import Job
from controlplane.model.order import Order
from controlplane.model.quantity import Number


@dataclass(frozen=True, slots=True)
class Facts:
    """The values of a book's task paths, in the book's order. The values have a meaning for the same book only."""

    values: tuple[Value, ...] = ()


NO_FACTS: Final = Facts()


@dataclass(frozen=True, slots=True, eq=False)
class TargetFacts:
    """A target as seen by rules. Compared by content: labels and capacity must not be changed after construction."""

    name: str
    region: str = ""
    driver: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)
    capacity: Mapping[str, Number] = field(default_factory=dict)
    _content: tuple[Value, ...] = field(init=False, repr=False)
    _hash: int = field(init=False, repr=False)

    def __post_init__(self) -> None:
        content = tuple(schema.read(("target", name), self) for name in schema.FIELDS["target"])
        object.__setattr__(self, "_content", content)
        object.__setattr__(self, "_hash", hash(content))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, TargetFacts) and self._content == other._content

    def __hash__(self) -> int:
        return self._hash


def of_task(paths: tuple[Path, ...], order: Order, job: Job) -> Facts:
    return Facts(tuple(schema.read(path, job if path[0] == "job" else order) for path in paths))
