"""Placed tasks which do not start, and the reasons given by the joblets of their targets: such tasks do not wait for a
cycle. Pure."""

from __future__ import annotations

from collections import Counter

from controlplane.cache.ledger import OrderLedger
from controlplane.model import texts
from controlplane.model.task import AttemptPhase

_MOST_CAUSES = 3


def sentence_of(ledger: OrderLedger) -> str:
    """A sentence on placed tasks whose joblet gives a reason for not having started them: counts by target and reason,
    the most frequent first; empty when there is no such task."""
    causes: Counter[str] = Counter()
    for live in ledger.live.values():
        for task in live.observed.tasks if live.observed is not None else ():
            if task.phase == AttemptPhase.STARTING and (task.reason or task.message):
                said = ": ".join(filter(None, (task.reason, texts.one_line(task.message))))
                causes[f"on {live.fulfilment.target}, {said}"] += 1
    if not causes:
        return ""
    total = sum(causes.values())
    front = "1 task is placed and does not start" if total == 1 else f"{total} tasks are placed and do not start"
    parts = [cause if count == total else f"{count} {cause}" for cause, count in causes.most_common(_MOST_CAUSES)]
    if len(causes) > _MOST_CAUSES:
        parts.append(f"and {len(causes) - _MOST_CAUSES} other reasons")
    return f"{front}: {'; '.join(parts)}."
