"""Rule: a sentence of the expert system, `when` an expression holds `then` an effect."""

from __future__ import annotations

from controlplane.model.bounds import Preference, PriorityStep, SmallCount, Text
from controlplane.model.object import Named, Part


class Effect(Part, frozen=True, kw_only=True):
    forbid: bool = False
    require: bool = False
    prefer: Preference | None = None
    priority: PriorityStep | None = None
    limit: SmallCount | None = None


class Rule(Named, tag="Rule", frozen=True, kw_only=True):
    when: Text = ""
    then: Effect | None = None
