"""All rules together: the book gives a ruling for the facts of a task and the targets.

Simple equivalent: for every rule and every target, evaluate `when` and note the effect. The faster version evaluates
the conditions of `when` separately, each condition only for the different values of the fields read, and keeps the
answers. For the same facts and targets, the book looks up a single entry. A book never changes; new rules are a new
book. A book may be used from several threads: two threads computing the same entry at once get equal results.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from functools import lru_cache
from types import MappingProxyType
from typing import Final

import numpy as np

from controlplane.engine.rules import facts as of_facts
from controlplane.engine.rules import growth
from controlplane.engine.rules.compile import CompiledRule, Failure, compile_rule
from controlplane.engine.rules.conditions import MOST_KEPT, Case, Conditions
from controlplane.engine.rules.facts import NO_FACTS, Facts, TargetFacts
from controlplane.engine.rules.landscape import Landscape
from controlplane.engine.rules.ruling import Limit, Mask, RuleError, Ruling
from controlplane.model.errors import Invalid
from controlplane.model.isolation import sentence
from controlplane.model.job import Job
from controlplane.model.order import Order
from controlplane.model.rule import Rule

LOWEST_PRIORITY: Final = 1
HIGHEST_PRIORITY: Final = 100
_MOST_LANDSCAPES: Final = 4
_USUAL_STEPS: Final = 1000


class Book:
    """`fields` are the fields of job and order read by the rules; `broken` gives, by rule, why a stored rule is left
    out."""

    def __init__(self, rules: tuple[CompiledRule, ...], broken: Mapping[str, str]) -> None:
        self.rules = rules
        self.broken: Mapping[str, str] = MappingProxyType(dict(broken))
        self._conditions = Conditions(path for rule in rules for path in rule.paths)
        self.reads_now = bool(self._conditions.now_paths)
        # How many times longer than usual the judgement of a task on a target takes.
        self.weight = 1 + sum(rule.steps for rule in rules) // _USUAL_STEPS
        self.limits = any(rule.effect.limit is not None for rule in rules)
        self.fields = frozenset(".".join(path) for path in self._conditions.task_paths)
        self._deltas: dict[Case, int] = {}
        self._landscapes: dict[tuple[TargetFacts, ...], Landscape] = {}
        self._latest = Landscape(())

    @classmethod
    def of(cls, rules: Iterable[Rule]) -> Book:
        compiled: list[CompiledRule] = []
        broken: dict[str, str] = {}
        left = growth.MOST_BOOK_STEPS
        for rule in sorted(rules, key=lambda rule: rule.name):
            try:
                candidate = compile_rule(rule)
            except Invalid as refusal:
                broken[rule.name] = str(refusal)
                continue
            except Exception as error:  # noqa: BLE001 - supervision: the other rules count
                broken[rule.name] = sentence(error)
                continue
            if candidate.steps > left:
                broken[rule.name] = "when: takes too long together with the rules before it; make them simpler"
                continue
            left -= candidate.steps
            compiled.append(candidate)
        return cls(tuple(compiled), broken)

    def facts(self, order: Order, job: Job) -> Facts:
        return of_facts.of_task(self._conditions.task_paths, order, job) if self.fields else NO_FACTS

    def rule(self, facts: Facts, targets: Sequence[TargetFacts], now: datetime) -> Ruling:
        if not self.rules:
            return _silence(len(targets))
        land = self._landscape(tuple(targets))
        case = self._conditions.case(facts, now)
        ruling = land.rulings.get((case.facts, case.now))
        return ruling if ruling is not None else land.keep((case.facts, case.now), self._ruling(case, land))

    def priority_of(self, facts: Facts, base: int, now: datetime) -> int:
        """The effective priority of tasks with these facts in an order of priority `base`."""
        delta = self._delta(self._conditions.case(facts, now)) if self.rules else 0
        return min(HIGHEST_PRIORITY, max(LOWEST_PRIORITY, base + delta))

    def _landscape(self, targets: tuple[TargetFacts, ...]) -> Landscape:
        latest = self._latest
        if targets is latest.targets:
            return latest
        land = self._landscapes.get(targets)
        if land is None:
            land = Landscape(targets)
            if len(self._landscapes) >= _MOST_LANDSCAPES:
                self._landscapes.clear()
            self._landscapes[targets] = land
        self._latest = land
        return land

    def _ruling(self, case: Case, land: Landscape) -> Ruling:
        forbidden: dict[str, Mask] = {}
        required: dict[str, Mask] = {}
        limits: list[Limit] = []
        errors: list[RuleError] = []
        prefer = np.zeros(len(land.targets))
        for rule in self.rules:
            try:
                if not (concerns := self._concerns(rule, case)):
                    continue
                if isinstance(concerns, Failure):
                    errors.append(RuleError(rule.name, None, concerns.message))
                    continue
                weighed = self._conditions.weigh(rule.demands(), case, land)
            except Exception as error:  # noqa: BLE001 - supervision: a rule that raises counts as not matching
                errors.append(RuleError(rule.name, None, sentence(error)))
                continue
            if weighed.failure is not None:
                errors.append(RuleError(rule.name, weighed.failed_at, weighed.failure.message))
            if rule.effect.require:
                required[rule.name] = weighed.holds
            elif rule.effect.forbid and weighed.holds.any():
                forbidden[rule.name] = weighed.holds
            elif rule.effect.prefer is not None:
                prefer += weighed.holds * (float(rule.effect.prefer) / 100)
            elif rule.effect.limit is not None and weighed.holds.any():
                limits.append(Limit(rule.name, rule.effect.limit, weighed.holds))
        return Ruling(
            forbidden=MappingProxyType(forbidden),
            required=MappingProxyType(required),
            prefer=land.shared(prefer),
            priority=self._delta(case),
            limits=tuple(limits),
            errors=tuple(errors),
        )

    def _concerns(self, rule: CompiledRule, case: Case) -> bool | Failure:
        """Whether the rule concerns this task: a requiring rule first checks the conditions about the task."""
        return self._conditions.hold(rule.about_task(), case) if rule.effect.require else True

    def _holds(self, rule: CompiledRule, case: Case) -> bool:
        try:
            return self._conditions.hold(rule.conjuncts, case) is True
        except Exception:  # noqa: BLE001 - supervision: a rule that raises counts as not matching
            return False

    def _delta(self, case: Case) -> int:
        delta = self._deltas.get(case)
        if delta is None:
            raising = [rule for rule in self.rules if rule.effect.priority is not None]
            delta = sum(rule.effect.priority or 0 for rule in raising if self._holds(rule, case))
            if len(self._deltas) >= MOST_KEPT:
                self._deltas.clear()
            self._deltas[case] = delta
        return delta


@lru_cache(maxsize=16)
def _silence(targets: int) -> Ruling:
    prefer = np.zeros(targets)
    prefer.flags.writeable = False
    return Ruling(forbidden={}, required={}, prefer=prefer)
