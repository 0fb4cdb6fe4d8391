"""P7, as far as it is about targets that scaling made: nothing with work on it is ever removed.

The record of a made target goes along its steps. Removing begins only while nothing is placed there; from the moment
that it is to be removed nothing new is placed there; and the record goes last.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from controlplane.model.scalepolicy import MADE_STEPS, REMOVE, Made, MadePhase
from controlplane.verify.history import Event
from controlplane.verify.verdict import Tally


class MadeTargets:
    def __init__(self, tally: Tally) -> None:
        self._tally = tally
        self._made: dict[str, Made] = {}
        self._placed: defaultdict[str, set[str]] = defaultdict(set)

    def start(self, state: Sequence[Event]) -> None:
        for event in state:
            self._follow(event)

    def change(self, changes: Sequence[Event]) -> None:
        # Compares see what was there before their transaction, and so does this.
        for event in changes:
            if event.tree == "status/made":
                self._judge(event)
            elif event.tree == "desired" and event.is_new and self._made:
                made = self._made.get(event.parts[0])
                if made is not None and made.want == REMOVE:
                    self._broken(event, f"was placed on {made.target}, which is to be removed")
        for event in changes:
            self._follow(event)

    def _judge(self, event: Event) -> None:
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

    def _follow(self, event: Event) -> None:
        if event.tree == "status/made":
            if isinstance(event.object, Made):
                self._made[event.parts[0]] = event.object
            else:
                self._made.pop(event.parts[0], None)
        elif event.tree == "desired":
            placed = self._placed[event.parts[0]]
            (placed.discard if event.deleted else placed.add)(event.parts[1])

    def _broken(self, event: Event, why: str) -> None:
        self._tally.broken(event.key, event.revision, why)
