"""P3: at most one fulfilment ever carries an attempt of a task, and at most one process was ever started for it.

Attempt numbers of a task rise by 1 (after a restore, from above the highest number that joblets reported), and the
next attempt is placed only when the attempt before is no longer desired. Only the newest attempt of each task is
remembered, because any placement of another than the next attempt is a violation.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from controlplane.model.cluster import ClusterStatus
from controlplane.model.fulfilment import Ended, Fulfilment, TaskRef
from controlplane.store import keys
from controlplane.verify.history import KeyChange
from controlplane.verify.joblet_records import JobletRecord
from controlplane.verify.promise_verdicts import PromiseVerdict, Tally

Task = tuple[str, str, int]
# Prefix of the ended record of attempts whose fulfilment vanished.
_STAND_IN = "lost-"


class AttemptsCheck:
    """Follows placements and ends of attempts, and the processes that joblets started."""

    def __init__(self) -> None:
        self._tally = Tally("P3", "nothing was placed")
        self._newest: dict[Task, tuple[int, str]] = {}
        self._live: set[str] = set()
        self._floor = 0
        self._started: dict[tuple[str, str, int, int], str] = {}
        self.duplicates: list[tuple[str, str, int, int]] = []

    def start(self, state: Sequence[KeyChange]) -> None:
        for event in state:
            self._raise_floor(event)
            stored = event.object
            if isinstance(stored, Fulfilment):
                self._live.add(stored.id)
            if isinstance(stored, Fulfilment | Ended):
                for task in stored.tasks:
                    self._take_known(event, _task(stored.order, task.job, task.index), task.attempt, stored.id)

    def change(self, revision: int, changes: Sequence[KeyChange]) -> None:
        for event in changes:
            self._raise_floor(event)
            if event.tree == keys.DESIRED and event.deleted:
                self._live.discard(event.parts[1])
        for event in changes:
            if isinstance(event.object, Fulfilment):
                self._place(event, event.object)
            elif isinstance(event.object, Ended):
                self._end(event, event.object)

    def _raise_floor(self, event: KeyChange) -> None:
        if isinstance(event.object, ClusterStatus):
            self._floor = max(self._floor, event.object.attempt_floor)

    def verdict(self, note: str = "") -> PromiseVerdict:
        return self._tally.verdict(note)

    def record(self, record: JobletRecord) -> None:
        """Adds a line of a joblet's records; lines may come in any order, from any number of joblets."""
        if record.event != "started":
            return
        self._tally.checked += 1
        before = self._started.get(record.run)
        if before is None:
            self._started[record.run] = f"{record.target} (pid {record.pid})"
        else:
            self._twice(record, before)

    def _twice(self, record: JobletRecord, before: str) -> None:
        self.duplicates.append(record.run)
        why = f"attempt {record.attempt} of {record.job}/{record.index} of order {record.order} was started twice: "
        self._tally.broken(record.key, 0, why + f"on {before} and on {record.target} (pid {record.pid})")

    def _take_known(self, event: KeyChange, task: Task, attempt: int, fulfilment: str) -> None:
        """Takes an attempt of the oldest revision; two fulfilments with the same attempt are a violation."""
        newest, carrier = self._newest.get(task, (0, ""))
        if attempt == newest and carrier != fulfilment:
            self._broken(event, f"carries attempt {attempt} of {_show(task)}, which {carrier} carried")
        if attempt > newest:
            self._newest[task] = attempt, fulfilment

    def _place(self, event: KeyChange, fulfilment: Fulfilment) -> None:
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
        """A rewritten fulfilment (rewritten to be stopped) must carry the same attempts as before."""
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

    def _end(self, event: KeyChange, ended: Ended) -> None:
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

    def _broken(self, event: KeyChange, why: str) -> None:
        self._tally.broken(event.key, event.revision, why)


def _task(order: str, job: str, index: int) -> Task:
    """Interns the job, since many orders share few names of jobs."""
    return order, sys.intern(job), index


def _show(task: Task) -> str:
    order, job, index = task
    return f"{job}/{index} of order {order}"
