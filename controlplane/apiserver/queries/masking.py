"""Masking: explanations and plans without anything about orders that the caller may not see.

Such orders are not named and not counted: they stay visible only as "other work", which the caller needs in order to
understand why an order waits. Rules are not named either.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from msgspec.structs import replace

from controlplane.cache import peek
from controlplane.cache.ledgers import Ledgers
from controlplane.engine import reason_codes
from controlplane.model.explanation import Explanation, GroupExplanation, Plan, TargetVerdict
from controlplane.store import keys

Sees = Callable[[str], bool]

_IDENTITY = r"\b[0-7][0-9A-HJKMNP-TV-Z]{25}\b"
_IDENTITIES = re.compile(rf"{_IDENTITY}(?:, {_IDENTITY})*")
_GO_FIRST = re.compile(r"\b\d+ orders? goe?s? first\b")
_STOPPED = re.compile(r" once \d+ fulfilments? (?:is|are) stopped \(of [^)]*\)")
_OTHERS = "other work"
# Sentences that would name rules, or count what all owners run; each begins with the name of the target.
_SENTENCES = {
    reason_codes.RULE_FORBIDS: "is forbidden by a rule",
    reason_codes.RULE_REQUIRES: "is not what a rule requires",
    reason_codes.LIMIT: "would take it, but not beyond the limit of a rule",
    reason_codes.FULL: "runs as many fulfilments as it may",
}


def sees_order(ledgers: Ledgers, owners: frozenset[str] | None) -> Sees:
    """Tells of an order, by its identity, whether its owner is one of these (None: everybody)."""

    def sees(identity: str) -> bool:
        if owners is None:
            return True
        ledger = ledgers.orders.get(identity)
        if ledger is not None:
            return ledger.order.owner in owners
        return peek.owner(ledgers.cache.snapshot.get(keys.ORDERS, identity)) in owners

    return sees


def mask_explanation(explanation: Explanation, sees: Sees) -> Explanation:
    ahead = tuple(other for other in explanation.ahead if sees(other.order))
    foreign = len(ahead) < len(explanation.ahead) or explanation.ahead_total > sum(other.tasks for other in ahead)
    text = _mask_conclusion(explanation.conclusion, explanation.groups, sees)
    return replace(
        explanation,
        conclusion=_GO_FIRST.sub("other orders go first", text) if foreign else text,
        groups=tuple(_mask_group(group, sees) for group in explanation.groups),
        ahead=ahead,
        ahead_total=sum(other.tasks for other in ahead),
        rule_errors=(),
    )


def mask_plan(plan: Plan, sees: Sees) -> Plan:
    evictions = tuple(eviction for eviction in plan.evictions if sees(eviction.order))
    text = plan.conclusion
    if len(evictions) < len(plan.evictions):
        text = _STOPPED.sub(f" once {_OTHERS} is stopped", text)
    return replace(
        plan,
        conclusion=_mask_conclusion(text, plan.groups, sees),
        groups=tuple(_mask_group(group, sees) for group in plan.groups),
        evictions=evictions,
    )


def mask_text(text: str, sees: Sees) -> str:
    """The text with visible orders named, and all others together as other work: not even their number is told."""

    def masked(identities: re.Match[str]) -> str:
        orders = identities[0].split(", ")
        visible = [order for order in orders if sees(order)]
        return ", ".join(visible if len(visible) == len(orders) else [*visible, _OTHERS])

    return _IDENTITIES.sub(masked, text)


def _mask_conclusion(text: str, groups: tuple[GroupExplanation, ...], sees: Sees) -> str:
    """A conclusion quotes the sentence of a target."""
    for verdict in (verdict for group in groups for verdict in group.targets if verdict.filter in _SENTENCES):
        text = text.replace(verdict.sentence, _sentence(verdict))
    return mask_text(text, sees)


def _mask_group(group: GroupExplanation, sees: Sees) -> GroupExplanation:
    return replace(group, targets=tuple(_mask_target(target, sees) for target in group.targets))


def _mask_target(verdict: TargetVerdict, sees: Sees) -> TargetVerdict:
    held_by = tuple(order for order in verdict.held_by if sees(order))
    return replace(verdict, held_by=held_by, sentence=mask_text(_sentence(verdict), sees))


def _sentence(verdict: TargetVerdict) -> str:
    general = _SENTENCES.get(verdict.filter)
    return verdict.sentence if general is None else f"{verdict.target} {general}"
