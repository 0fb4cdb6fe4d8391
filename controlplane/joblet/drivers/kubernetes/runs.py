"""One fulfilment at this cluster: how far its pod is, and what is seen of its tasks."""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum

from controlplane.joblet.drivers.kubernetes.api import Json
from controlplane.joblet.drivers.kubernetes.journal import Intent
from controlplane.joblet.drivers.kubernetes.observing import Stopping, observe, vanished
from controlplane.joblet.drivers.kubernetes.pod import ORDER, name_of, refs_of
from controlplane.joblet.reconcile import ALIVE, lost, observed_task
from controlplane.model.fulfilment import Fulfilment, ObservedTask, TaskRef


class Stage(Enum):
    QUEUED = "queued"  # nothing was sent
    UNKNOWN = "unknown"  # it may be there, or may still come
    THERE = "there"
    GONE = "gone"  # it is not there and will not come
    REFUSED = "refused"  # the API will not have it


class Run:
    """`fed`: the watch has told of its pod, so that it will also tell of its end. A `dropped` one is no longer desired;
    of a `doomed` one the end was told before its pod came after all."""

    def __init__(self, intent: Intent, stage: Stage, fulfilment: Fulfilment | None = None) -> None:
        self.intent = intent
        self.fulfilment = fulfilment
        self.stage = stage
        self.pod: Json | None = None
        self.fed = False
        self.observed: dict[TaskRef, ObservedTask] = {ref: observed_task(ref, "Starting") for ref in intent.tasks}
        self.stopping: Stopping | None = None
        self.dropped = False
        self.doomed = False
        self.intended = stage is not Stage.QUEUED
        self.removing = False
        self.resolving = False
        self.recorded_starts = 0
        self.recorded_end = False
        self.counted = (0, 0)

    @property
    def id(self) -> str:
        return self.intent.fulfilment

    @property
    def name(self) -> str:
        """Of its pod."""
        return str(self.pod["metadata"]["name"]) if self.pod is not None else name_of(self.id)

    @property
    def unwanted(self) -> bool:
        """Nobody wants its pod any more: one that was not asked for yet is not asked for."""
        return self.over or self.stopping is not None

    @property
    def over(self) -> bool:
        """Nobody desires it: its pod is to go without regard to its tasks."""
        return self.dropped or self.doomed

    @property
    def unknown(self) -> bool:
        """Whether its pod may be there, or may still come, and nobody knows."""
        return self.stage is Stage.UNKNOWN

    @property
    def alive(self) -> bool:
        if self.stage is Stage.UNKNOWN:
            return True
        if self.stage is Stage.THERE and (self.doomed or not self.observed):
            return _phase(self.pod) not in ("Succeeded", "Failed")
        return any(task.phase in ALIVE for task in self.observed.values())

    def count(self) -> tuple[int, int]:
        """(alive and desired, alive and no longer desired)."""
        living = self.living()
        return (0, living) if self.over else (living, 0)

    def living(self) -> int:
        """How many of its tasks are alive, at least one while anything of it may be."""
        return max(sum(task.phase in ALIVE for task in self.observed.values()), 1) if self.alive else 0

    def see(self, pod: Json, *, fed: bool) -> None:
        self.stage = Stage.THERE
        self.pod = pod
        self.fed = self.fed or fed
        if not self.doomed:
            self.observed = {**self.observed, **observe(pod)}

    def lose(self, last: Json | None = None) -> None:
        """The pod is gone: what had not ended has now, as the last look says."""
        last = last or self.pod
        if last is not None and not self.doomed:
            self.observed = {**self.observed, **{ref: seen for ref, seen in observe(last).items() if _over(seen)}}
        self.stage = Stage.GONE
        for ref, seen in self.observed.items():
            if not _over(seen):
                self.observed[ref] = self._cancelled(ref) or vanished(ref, last)

    def never_came(self) -> None:
        """A create was sent, and can no longer act."""
        self.stage = Stage.GONE
        message = "its pod was asked for, and never came"
        self.observed = {ref: self._cancelled(ref) or lost(ref, message) for ref in self.observed}

    def doom(self) -> None:
        """Whatever becomes of its pod, its tasks have ended."""
        self.doomed, self.removing = True, False

    def end(self, stage: Stage, seen: Sequence[ObservedTask]) -> None:
        self.stage = stage
        self.observed = {TaskRef(job=task.job, index=task.index, attempt=task.attempt): task for task in seen}

    def _cancelled(self, ref: TaskRef) -> ObservedTask | None:
        stop = self.stopping
        if stop is None:
            return None
        return observed_task(ref, stop.phase, reason=stop.reason, message=stop.message)


def found(pod: Json, identity: str, target: str) -> Run:
    """A pod of ours of which nothing else is known here."""
    order = pod["metadata"]["labels"].get(ORDER, "")
    return Run(Intent(fulfilment=identity, order=order, target=target, tasks=refs_of(pod)), Stage.THERE)


def _over(task: ObservedTask) -> bool:
    return task.phase not in ALIVE


def _phase(pod: Json | None) -> str:
    return str((pod or {}).get("status", {}).get("phase", ""))
