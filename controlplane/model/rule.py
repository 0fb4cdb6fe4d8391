"""Rule: one sentence of the expert system, `when` an expression holds `then` an effect."""

from __future__ import annotations

from controlplane.model.object import Named, Part
from controlplane.model.quantity import Number


class Effect(Part, frozen=True, kw_only=True):
    forbid: bool = False
    require: bool = False
    prefer: Number | None = None
    priority: int | None = None
    limit: int | None = None


class Rule(Named, tag="Rule", frozen=True, kw_only=True):
    when: str = ""
    then: Effect | None = None
