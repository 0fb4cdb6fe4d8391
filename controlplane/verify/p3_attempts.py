"""P3: at most one fulfilment ever carries an attempt of a task, and at most one process was ever started for it.

Attempts of a task count up by one, after a restore from above what joblets knew, and the next is placed only when the
one before is no longer desired. Of a task
only the newest attempt has to be remembered, because any placement that is not the next one is a violation.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from controlplane.model.cluster import ClusterStatus
from controlplane.model.fulfilment import Ended, Fulfilment, TaskRef
from controlplane.verify.history import Event
from controlplane.verify.records import Record
from controlplane.verify.verdict import Tally, Verdict

Task = tuple[str, str, int]
# Ends of attempts whose fulfilment vanished stand under the attempt's own name.
_STAND_IN = "lost-"


class Attempts:
    def __init__(self) -> None:
        self._tally = Tally("P3", "nothing was placed")
        self._newest: dict[Task, tuple[int, str]] = {}
        self._live: set[str] = set()
        self._floor = 0
        self._started: dict[tuple[str, str, int, int], str] = {}
        self.duplicates: list[tuple[str, str, int, int]] = []

    def start(self, state: Sequence[Event]) -> None:
        for event in state:
            self._raise_floor(event)
            if isinstance(event.object, Fulfilment):
                self._live.add(event.object.id)
                for task in event.object.tasks:
                    self._known(event, _task(event.object.order, task.job, task.index), task.attempt, event.object.id)
            elif isinstance(event.object, Ended):
                for end in event.object.tasks:
                    self._known(event, _task(event.object.order, end.job, end.index), end.attempt, event.object.id)

    def change(self, revision: int, changes: Sequence[Event]) -> None:
        for event in changes:
            self._raise_floor(event)
            if event.tree == "desired" and event.deleted:
                self._live.discard(event.parts[1])
        for event in changes:
            if isinstance(event.object, Fulfilment):
                self._place(event, event.object)
            elif isinstance(event.object, Ended):
                self._end(event, event.object)

    def _raise_floor(self, event: Event) -> None:
        if isinstance(event.object, ClusterStatus):
            self._floor = max(self._floor, event.object.attempt_floor)

    def verdict(self, note: str = "") -> Verdict:
        return self._tally.verdict(note)

    def record(self, record: Record) -> None:
        """What a joblet wrote down; in any order, from any number of joblets."""
        if record.event != "started":
            return
        self._tally.checked += 1
        before = self._started.get(record.run)
        if before is None:
            self._started[record.run] = f"{record.target} (pid {record.pid})"
        else:
            self._twice(record, before)

    def _twice(self, record: Record, before: str) -> None:
        self.duplicates.append(record.run)
        why = f"attempt {record.attempt} of {record.job}/{record.index} of order {record.order} was started twice: "
        self._tally.broken(record.key, 0, why + f"on {before} and on {record.target} (pid {record.pid})")

    def _known(self, event: Event, task: Task, attempt: int, fulfilment: str) -> None:
        """The state at the oldest revision: the newest attempt counts, two carriers of one attempt are too many."""
        newest, carrier = self._newest.get(task, (0, ""))
        if attempt == newest and carrier != fulfilment:
            self._broken(event, f"carries attempt {attempt} of {_show(task)}, which {carrier} carried")
        if attempt > newest:
            self._newest[task] = attempt, fulfilment

    def _place(self, event: Event, fulfilment: Fulfilment) -> None:
        rewritten = fulfilment.id in self._live
        self._live.add(fulfilment.id)
        if event.parts != (fulfilment.target, fulfilment.id):
            self._broken(event, f"holds fulfilment {fulfilment.id} of target {fulfilment.target}")
        for ref in fulfilment.tasks:
            self._tally.checked += 1
            task = _task(fulfilment.order, ref.job, ref.index)
            why = self._repeated(task, ref, fulfilment.id) if rewritten else self._follows(task, ref, fulfilment.id)
            if why:
                self._broken(event, why)
            if ref.attempt >= self._newest.get(task, (0, ""))[0]:
                self._newest[task] = ref.attempt, fulfilment.id

    def _repeated(self, task: Task, ref: TaskRef, fulfilment: str) -> str:
        """A rewrite (to stop it) carries what it carried before."""
        if self._newest.get(task) == (ref.attempt, fulfilment):
            return ""
        return f"was rewritten to carry attempt {ref.attempt} of {_show(task)}"

    def _follows(self, task: Task, ref: TaskRef, fulfilment: str) -> str:
        newest, carrier = self._newest.get(task, (0, ""))
        if carrier == fulfilment:
            return f"was placed again after its end, with {_show(task)}"
        if ref.attempt <= newest:
            self.duplicates.append((*task, ref.attempt))
            return f"carries attempt {ref.attempt} of {_show(task)}; {carrier} carried attempt {newest}"
        if ref.attempt > max(newest, self._floor) + 1:
            return f"carries attempt {ref.attempt} of {_show(task)}, but the one before was {newest}"
        if carrier in self._live:
            return f"carries attempt {ref.attempt} of {_show(task)} while {carrier} is still desired"
        return ""

    def _end(self, event: Event, ended: Ended) -> None:
        if ended.id.startswith(_STAND_IN):
            return
        for end in ended.tasks:
            self._tally.checked += 1
            task = _task(ended.order, end.job, end.index)
            newest, carrier = self._newest.get(task, (0, ""))
            if newest < end.attempt:
                self._broken(event, f"ends attempt {end.attempt} of {_show(task)}, which was never placed")
            elif newest == end.attempt and carrier != ended.id:
                self._broken(event, f"ends attempt {end.attempt} of {_show(task)}, which {carrier} carried")

    def _broken(self, event: Event, why: str) -> None:
        self._tally.broken(event.key, event.revision, why)


def _task(order: str, job: str, index: int) -> Task:
    """Many orders share few names of jobs."""
    return order, sys.intern(job), index


def _show(task: Task) -> str:
    order, job, index = task
    return f"{job}/{index} of order {order}"
