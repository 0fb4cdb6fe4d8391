"""Suspicions: states that are ordinary for a moment, and break a promise when they last.

The age of a state cannot be read from etcd: revisions carry no time, and the stamps in records come from the clocks of
several machines. So verification takes the present state, watches etcd for as long as a suspicion may last, on its own
clock, and reports a violation only for a state that lasted all the time.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from controlplane.verify.history import KeyChange
from controlplane.verify.present import Present
from controlplane.verify.promise_verdicts import Tally


@dataclass(frozen=True, slots=True)
class Suspicion:
    """`key` and `revision` name the state that stands still; for `seconds` the state is ordinary."""

    key: str
    revision: int
    why: str
    seconds: float


class Question(Protocol):
    """A kind of suspicion. `suspect` is called again for a subject as long as the answer is a suspicion."""

    promise: str

    def subjects(self, present: Present) -> Iterable[str]: ...

    def suspect(self, present: Present, subject: str) -> Suspicion | None: ...


class Suspicions:
    """Feed history to `start` and `change`, call `begin`, feed `change` until `left` is 0, then call `report`."""

    def __init__(self, present: Present, questions: Sequence[Question]) -> None:
        self.present = present
        self._questions = list(questions)
        self._began = 0.0
        self._examined: dict[str, int] = {}
        self._open: dict[tuple[int, str], Suspicion] = {}
        self._unsettled = ""

    def ask(self, question: Question) -> None:
        """Adds a question; only before `begin`."""
        self._questions.append(question)

    def start(self, state: Sequence[KeyChange]) -> None:
        self.present.start(state)

    def change(self, revision: int, changes: Sequence[KeyChange]) -> None:
        self.present.change(revision, changes)
        # A new state cannot last long enough any more, so only the suspicions of `begin` are tested again.
        for number, subject in list(self._open):
            suspicion = self._questions[number].suspect(self.present, subject)
            if suspicion is None:
                del self._open[number, subject]
            else:
                self._open[number, subject] = suspicion

    def begin(self, now: float) -> None:
        self._began = now
        self._open.clear()
        self._examined.clear()
        for number, question in enumerate(self._questions):
            subjects = list(question.subjects(self.present))
            examined = self._examined.get(question.promise, 0)
            self._examined[question.promise] = examined + len(subjects)
            for subject in subjects:
                if (suspicion := question.suspect(self.present, subject)) is not None:
                    self._open[number, subject] = suspicion

    def left(self, now: float) -> float:
        """For how many more seconds etcd must be watched; 0 when each suspicion is settled."""
        longest = max((suspicion.seconds for suspicion in self._open.values()), default=0.0)
        return max(0.0, self._began + longest - now)

    def give_up(self, why: str) -> None:
        """Changes were missed: the open suspicions are neither violations nor refuted, so the promise is unknown."""
        self._unsettled = f"{why}: {len(self._open)} suspicions were not settled"
        self._open.clear()

    def report(self, tallies: Mapping[str, Tally]) -> None:
        for promise, number in self._examined.items():
            tallies[promise].checked += number
        for (number, _), suspicion in self._open.items():
            why = f"{suspicion.why}, for longer than {suspicion.seconds:g} s"
            tallies[self._questions[number].promise].broken(suspicion.key, suspicion.revision, why)
        if self._unsettled:
            for promise in self._examined:
                tallies[promise].cannot_tell(self._unsettled)
