"""Suspicions: states that are ordinary for a moment and a broken promise when they last.

How long a state lasted cannot be read from etcd: revisions carry no time, and the stamps in its records come from the
clocks of several machines. So whoever verifies looks at the present, listens for as long as a suspicion is allowed to
last, on a clock of its own, and calls a violation only what was there all the time.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from controlplane.verify.history import Event
from controlplane.verify.present import Present
from controlplane.verify.verdict import Tally


@dataclass(frozen=True, slots=True)
class Suspicion:
    """`key` and `revision` name what stands still, `seconds` is how long that is ordinary."""

    key: str
    revision: int
    why: str
    seconds: float


class Question(Protocol):
    """One kind of suspicion. `look` is asked again for the same subject as long as its answer is a suspicion."""

    promise: str

    def subjects(self, present: Present) -> Iterable[str]: ...

    def look(self, present: Present, subject: str) -> Suspicion | None: ...


class Suspicions:
    """Feed `present` with history, then `begin`, then feed `change` until `left` is 0, then `tell`."""

    def __init__(self, present: Present, questions: Sequence[Question]) -> None:
        self.present = present
        self._questions = list(questions)
        self._began = 0.0
        self._looked_at: dict[str, int] = {}
        self._open: dict[tuple[int, str], Suspicion] = {}
        self._unsettled = ""

    def ask(self, question: Question) -> None:
        """One more, before `begin`."""
        self._questions.append(question)

    def start(self, state: Sequence[Event]) -> None:
        self.present.start(state)

    def change(self, revision: int, changes: Sequence[Event]) -> None:
        self.present.change(revision, changes)
        # What is new cannot last long enough any more, hence only the first suspicions are asked about again.
        for number, subject in list(self._open):
            suspicion = self._questions[number].look(self.present, subject)
            if suspicion is None:
                del self._open[number, subject]
            else:
                self._open[number, subject] = suspicion

    def begin(self, now: float) -> None:
        self._began = now
        self._open.clear()
        self._looked_at.clear()
        for number, question in enumerate(self._questions):
            subjects = list(question.subjects(self.present))
            looked_at = self._looked_at.get(question.promise, 0)
            self._looked_at[question.promise] = looked_at + len(subjects)
            for subject in subjects:
                if (suspicion := question.look(self.present, subject)) is not None:
                    self._open[number, subject] = suspicion

    def left(self, now: float) -> float:
        """For how many seconds the present has still to be listened to; 0 when each suspicion is settled."""
        longest = max((suspicion.seconds for suspicion in self._open.values()), default=0.0)
        return max(0.0, self._began + longest - now)

    def give_up(self, why: str) -> None:
        """What happened meanwhile is not known: nothing that is open is a violation, nor is it in order."""
        self._unsettled = f"{why}: {len(self._open)} suspicions were not settled"
        self._open.clear()

    def tell(self, tallies: Mapping[str, Tally]) -> None:
        for promise, number in self._looked_at.items():
            tallies[promise].checked += number
        for (number, _), suspicion in self._open.items():
            why = f"{suspicion.why}, for longer than {suspicion.seconds:g} s"
            tallies[self._questions[number].promise].broken(suspicion.key, suspicion.revision, why)
        if self._unsettled:
            for promise in self._looked_at:
                tallies[promise].cannot_tell(self._unsettled)
