"""The part of P7 about targets created by scaling: a target with work is never removed.

The record of such a target follows its table of steps. Removal begins only while the target has no placement; once a
target is to be removed it gets no placement; and its record is deleted last.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from controlplane.model.scalepolicy import MADE_STEPS, REMOVE, Made, MadePhase
from controlplane.store import keys
from controlplane.verify.history import KeyChange
from controlplane.verify.promise_verdicts import Tally


class MadeTargets:
    """Follows the records of created targets and their placements."""

    def __init__(self, tally: Tally) -> None:
        self._tally = tally
        self._made: dict[str, Made] = {}
        self._placed: defaultdict[str, set[str]] = defaultdict(set)

    def start(self, state: Sequence[KeyChange]) -> None:
        for event in state:
            self._follow(event)

    def change(self, changes: Sequence[KeyChange]) -> None:
        # A transaction compares the state before itself, so the state before is judged.
        for event in changes:
            if event.tree == keys.MADE:
                self._judge(event)
            elif event.tree == keys.DESIRED and event.is_new and self._made:
                made = self._made.get(event.parts[0])
                if made is not None and made.want == REMOVE:
                    self._broken(event, f"was placed on {made.target}, which is to be removed")
        for event in changes:
            self._follow(event)

    def _judge(self, event: KeyChange) -> None:
        self._tally.checked += 1
        name = event.parts[0]
        before, after = self._made.get(name), event.object
        goes = event.deleted or (isinstance(after, Made) and after.phase == MadePhase.REMOVING)
        if goes and self._placed[name]:
            self._broken(event, f"{name} was removed with {len(self._placed[name])} fulfilments on it")
        if before is None:
            return
        if event.deleted and before.phase != MadePhase.REMOVING:
            self._broken(event, f"was deleted while it was {before.phase}")
        if isinstance(after, Made) and (before.phase, after.phase) not in MADE_STEPS:
            self._broken(event, f"went from {before.phase} to {after.phase}")

    def _follow(self, event: KeyChange) -> None:
        if event.tree == keys.MADE:
            if isinstance(event.object, Made):
                self._made[event.parts[0]] = event.object
            else:
                self._made.pop(event.parts[0], None)
        elif event.tree == keys.DESIRED:
            placed = self._placed[event.parts[0]]
            (placed.discard if event.deleted else placed.add)(event.parts[1])

    def _broken(self, event: KeyChange, why: str) -> None:
        self._tally.broken(event.key, event.revision, why)
