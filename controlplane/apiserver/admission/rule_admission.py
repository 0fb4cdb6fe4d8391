"""The rules of a Rule. Its expression is compiled, so every replica can evaluate a stored rule."""

from __future__ import annotations

from controlplane.apiserver.admission import fields
from controlplane.apiserver.admission.catalogue import Catalogue
from controlplane.apiserver.admission.fields import at
from controlplane.engine.rules.compile import LONGEST, compile_rule
from controlplane.model.bounds import INT32
from controlplane.model.errors import Invalid
from controlplane.model.rule import Effect, Rule

MAX_NESTING = 2


def admit(rule: Rule, _known: Catalogue, path: str = "") -> Rule:
    if not rule.when.strip():
        raise Invalid(at(path, "when"), "must be an expression")
    fields.text(rule.when, at(path, "when"), most=LONGEST)
    effect(rule.then or Effect(), at(path, "then"))
    try:
        compiled = compile_rule(rule)
    except Invalid as refusal:
        raise Invalid(at(path, refusal.field), refusal.rule) from None
    if compiled.nesting > MAX_NESTING:
        raise Invalid(at(path, "when"), f"must not have more than {MAX_NESTING} loops in each other")
    return rule


def effect(then: Effect, field: str) -> None:
    said = [name for name in then.__struct_fields__ if getattr(then, name) not in (None, False)]
    if len(said) != 1:
        effects = ", ".join(said) or "none of them"
        raise Invalid(field, f"must say exactly one of {', '.join(then.__struct_fields__)}, not {effects}")
    if then.prefer is not None:
        fields.number(then.prefer, f"{field}.prefer", least=-100, most=100)
    if then.priority is not None:
        fields.number(then.priority, f"{field}.priority", least=-99, most=99)
    if then.limit is not None:
        fields.number(then.limit, f"{field}.limit", least=0, most=INT32)
