"""Explanations and plans for a caller who may not see all orders: others are neither named nor counted."""

from __future__ import annotations

import re

import pytest

from controlplane.apiserver.queries.masking import mask_explanation, mask_plan, mask_text
from controlplane.engine import reason_codes
from controlplane.model.explanation import (
    Ahead,
    Explanation,
    GroupExplanation,
    Plan,
    PlannedEviction,
    TargetVerdict,
)
from tests.builders import an_identity

OWN, FIRST, SECOND, THIRD = (an_identity() for _ in range(4))


def sees(order: str) -> bool:
    return order == OWN


def nothing(_order: str) -> bool:
    return False


@pytest.mark.parametrize(
    ("text", "masked"),
    [
        (f"is held by {OWN}", f"is held by {OWN}"),
        (f"is held by {FIRST}", "is held by other work"),
        (f"Held by {FIRST}, {SECOND}, {THIRD}.", "Held by other work."),
        (f"Held by {FIRST}, {OWN}, {SECOND}.", f"Held by {OWN}, other work."),
        ("12 tasks wait", "12 tasks wait"),
    ],
)
def test_other_orders_are_neither_named_nor_counted(text: str, masked: str) -> None:
    assert mask_text(text, sees) == masked


def verdict(filter_code: str, sentence: str, *held_by: str) -> TargetVerdict:
    return TargetVerdict(target="t1", fits=False, filter=filter_code, held_by=held_by, sentence=f"t1 {sentence}")


@pytest.mark.parametrize(
    ("code", "sentence"),
    [
        (reason_codes.RULE_FORBIDS, "is forbidden by rule bobs-rule"),
        (reason_codes.RULE_REQUIRES, "is not what rule bobs-rule requires"),
        (reason_codes.LIMIT, "would take it, but not beyond the limit of rule bobs-rule (17 of 18)"),
        (reason_codes.FULL, "runs as many fulfilments as it may (17)"),
        (reason_codes.HELD, f"would take it, but licence is held by {FIRST}, {SECOND}"),
        (reason_codes.RESERVED, f"is kept for {FIRST}, {SECOND}, which goes first and begins there in 9 seconds"),
    ],
)
def test_the_sentence_of_a_target_and_its_quotation_are_masked_alike(code: str, sentence: str) -> None:
    refusing = verdict(code, sentence, FIRST, SECOND)
    group = GroupExplanation(job="render", count=1, reason=code, targets=(refusing,))
    conclusion = f"1 task waits: no target takes it; nearest: {refusing.sentence}. Held by {FIRST}, {SECOND}."
    whole = Explanation(order=OWN, revision=1, conclusion=conclusion, groups=(group,), rule_errors=("bobs-rule",))
    masked = mask_explanation(whole, nothing)
    seen = masked.groups[0].targets[0]
    assert seen.sentence in masked.conclusion
    assert seen.held_by == masked.rule_errors == ()
    for hidden in (FIRST, SECOND, "bobs-rule", "17", "18"):
        assert hidden not in f"{masked}"


def test_orders_ahead_are_shown_as_far_as_the_caller_may_see_them() -> None:
    ahead = (Ahead(order=FIRST, priority=90, tasks=5), Ahead(order=OWN, priority=80, tasks=2))
    whole = Explanation(
        order=an_identity(),
        revision=1,
        conclusion="1 task waits: 2 orders go first and leave no room.",
        ahead=ahead,
        ahead_total=7,
    )
    masked = mask_explanation(whole, sees)
    assert masked.ahead == (ahead[1],)
    assert masked.ahead_total == 2
    assert masked.conclusion == "1 task waits: other orders go first and leave no room."


def test_a_plan_tells_that_other_work_would_be_stopped_and_nothing_more() -> None:
    evictions = tuple(
        PlannedEviction(fulfilment=an_identity(), order=order, target="t1") for order in (FIRST, SECOND, THIRD, OWN)
    )
    named = f"{FIRST}, {SECOND}, {THIRD} and 1 others"
    conclusion = f"It would start now on 1 target once 4 fulfilments are stopped (of {named})."
    whole = Plan(placeable=True, revision=1, conclusion=conclusion, evictions=evictions)
    masked = mask_plan(whole, sees)
    assert masked.conclusion == "It would start now on 1 target once other work is stopped."
    assert masked.evictions == evictions[3:]
    assert not re.search("4|others", masked.conclusion)
    assert mask_plan(whole, lambda _: True) == whole
