"""`ORDER[/JOB[/INDEX]]`: the selection of an order, a job or a task on the command line."""

from __future__ import annotations

from dataclasses import dataclass

from controlplane.model import identity
from controlplane.model.errors import Invalid


@dataclass(frozen=True, slots=True)
class Selection:
    order: str
    job: str = ""
    index: int | None = None


def selection_of(text: str) -> Selection:
    order, *rest = text.split("/")
    identity.check(order, field="order")
    if not rest:
        return Selection(order)
    if len(rest) > 2 or not all(rest):
        raise Invalid("order", f"must be ORDER, ORDER/JOB or ORDER/JOB/INDEX, not {text!r}")
    if len(rest) == 1:
        return Selection(order, rest[0])
    if not (rest[1].isascii() and rest[1].isdigit()) or len(rest[1]) > 7:
        raise Invalid("index", f"must be the number of a task, not {rest[1]!r}")
    return Selection(order, rest[0], int(rest[1]))
