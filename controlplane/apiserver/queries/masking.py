"""Masking: explanations and plans without anything about orders that the caller may not see.

Such orders are not named and not counted: they stay visible only as "others", which the caller needs in order to
understand why an order waits.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from msgspec.structs import replace

from controlplane.cache import peek
from controlplane.cache.ledgers import Ledgers
from controlplane.model.explanation import Explanation, GroupExplanation, Plan, TargetVerdict
from controlplane.store import keys

Sees = Callable[[str], bool]

_IDENTITY = re.compile(r"\b[0-7][0-9A-HJKMNP-TV-Z]{25}\b")
_GO_FIRST = re.compile(r"\b\d+ orders? goe?s? first\b")


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
    text = mask_text(explanation.conclusion, sees)
    return replace(
        explanation,
        conclusion=_GO_FIRST.sub("other orders go first", text) if foreign else text,
        groups=tuple(_mask_group(group, sees) for group in explanation.groups),
        ahead=ahead,
        ahead_total=sum(other.tasks for other in ahead),
        rule_errors=(),
    )


def mask_plan(plan: Plan, sees: Sees) -> Plan:
    return replace(
        plan,
        conclusion=mask_text(plan.conclusion, sees),
        groups=tuple(_mask_group(group, sees) for group in plan.groups),
        evictions=tuple(eviction for eviction in plan.evictions if sees(eviction.order)),
    )


def mask_text(text: str, sees: Sees) -> str:
    return _IDENTITY.sub(lambda found: found[0] if sees(found[0]) else "another order", text)


def _mask_group(group: GroupExplanation, sees: Sees) -> GroupExplanation:
    return replace(group, targets=tuple(_mask_target(target, sees) for target in group.targets))


def _mask_target(verdict: TargetVerdict, sees: Sees) -> TargetVerdict:
    held_by = tuple(order for order in verdict.held_by if sees(order))
    return replace(verdict, held_by=held_by, sentence=mask_text(verdict.sentence, sees))
