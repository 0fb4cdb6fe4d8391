"""One fulfilment at this cluster: how far its pod is, the observations of its tasks, and the table of all of them."""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum, IntEnum

from controlplane.joblet.drivers.kubernetes.api import Json
from controlplane.joblet.drivers.kubernetes.journal import Intent
from controlplane.joblet.drivers.kubernetes.observing import Stopping, observe, vanished
from controlplane.joblet.drivers.kubernetes.pod import ORDER, name_of, refs_of
from controlplane.joblet.reconcile import lost, observed_task, ref_of
from controlplane.model.fulfilment import Fulfilment, ObservedTask, TaskRef
from controlplane.model.task import ALIVE, AttemptPhase


class Stage(Enum):
    """How far the pod is. A create acts at most once, so a run never goes back behind INTENDED."""

    QUEUED = "queued"  # no intent is on disk
    INTENDED = "intended"  # the intent is on disk, and no create can have acted
    INHERITED = "inherited"  # an earlier joblet left the intent, and the pod was not looked for yet
    UNKNOWN = "unknown"  # a create was sent, and may have acted or may still act
    CONFIRMED = "confirmed"  # the API answered that the pod exists; the watch has not shown it yet
    WATCHED = "watched"  # the watch has shown the pod, so it will also show its end
    GONE = "gone"  # the pod does not exist and will not appear
    REFUSED = "refused"  # the API does not accept the pod


class Removal(IntEnum):
    """How the driver has asked the API to remove the pod; a later member replaces an earlier one."""

    NONE = 0
    STOP = 1  # with the grace that the pod itself names
    AT_ONCE = 2


class RecordState(Enum):
    """How much of the run is in the attempt records."""

    NOTHING = "nothing"
    STARTS = "starts"
    ENDS = "ends"


_UNSENT = frozenset({Stage.QUEUED, Stage.INTENDED})
_UNKNOWN = frozenset({Stage.INHERITED, Stage.UNKNOWN})
_THERE = frozenset({Stage.CONFIRMED, Stage.WATCHED})


class PodRun:
    """A fulfilment and its pod. `dropped`: the fulfilment is no longer desired.

    `ended_early`: the end of the tasks was reported before the pod appeared after all, and stays as reported.
    `recorded_starts` counts the tasks whose start is on record; a disk that was full in between stops it.
    """

    def __init__(self, intent: Intent, stage: Stage, fulfilment: Fulfilment | None = None) -> None:
        self.intent = intent
        self.fulfilment = fulfilment
        self.stage = stage
        self.pod: Json | None = None
        self.observed = {ref: observed_task(ref, AttemptPhase.STARTING) for ref in intent.tasks}
        self.stopping: Stopping | None = None
        self.removal = Removal.NONE
        self.dropped = False
        self.ended_early = False
        self.recorded = RecordState.NOTHING if stage is Stage.QUEUED else RecordState.STARTS
        self.recorded_starts = 0
        self.counted = (0, 0)

    @property
    def id(self) -> str:
        return self.intent.fulfilment

    @property
    def pod_name(self) -> str:
        return str(self.pod["metadata"]["name"]) if self.pod is not None else name_of(self.id)

    @property
    def unsent(self) -> bool:
        """Whether no create of the pod can have acted."""
        return self.stage in _UNSENT

    @property
    def unknown(self) -> bool:
        """Whether the pod may exist, or may still appear, without the joblet knowing."""
        return self.stage in _UNKNOWN

    @property
    def there(self) -> bool:
        return self.stage in _THERE

    @property
    def unwanted(self) -> bool:
        """Whether a pod that was not created yet is not to be created any more."""
        return self.over or self.stopping is not None

    @property
    def over(self) -> bool:
        """Whether the pod is to go without regard to its tasks."""
        return self.dropped or self.ended_early

    @property
    def alive(self) -> bool:
        if self.unknown:
            return True
        if self.there and (self.ended_early or not self.observed):
            return _phase(self.pod) not in ("Succeeded", "Failed")
        return any(task.phase in ALIVE for task in self.observed.values())

    def count(self) -> tuple[int, int]:
        """How many tasks are (alive and desired, alive and no longer desired)."""
        living = self.living()
        return (0, living) if self.over else (living, 0)

    def living(self) -> int:
        """How many of the tasks are alive, at least one while the pod may be."""
        return max(sum(task.phase in ALIVE for task in self.observed.values()), 1) if self.alive else 0

    def intend(self, intent: Intent) -> None:
        """The intent is on disk: from now on the ends of the tasks belong into the records too."""
        self.intent, self.stage, self.recorded = intent, Stage.INTENDED, RecordState.STARTS

    def see(self, pod: Json, stage: Stage) -> None:
        """The pod exists, CONFIRMED by an answer of the API or WATCHED."""
        self.stage = stage
        self.pod = pod
        if not self.ended_early:
            self.observed = {**self.observed, **observe(pod)}

    def lose(self, last: Json | None = None) -> None:
        """The pod is gone: tasks that had not ended have ended now, as the last observation says."""
        last = last or self.pod
        if last is not None and not self.ended_early:
            self.observed = {**self.observed, **{ref: seen for ref, seen in observe(last).items() if _over(seen)}}
        self.stage = Stage.GONE
        for ref, seen in self.observed.items():
            if not _over(seen):
                self.observed[ref] = self._cancelled(ref) or vanished(ref, last)

    def never_sent(self) -> None:
        """No create was sent, and none will be."""
        reason = self.stopping.reason if self.stopping is not None else ""
        self.end(Stage.GONE, [observed_task(ref, AttemptPhase.CANCELLED, reason=reason) for ref in self.observed])

    def never_came(self) -> None:
        """A create was sent, and can no longer act."""
        message = "its pod was asked for, and never came"
        self.end(Stage.GONE, [self._cancelled(ref) or lost(ref, message) for ref in self.observed])

    def mark_ended(self) -> None:
        """The tasks have ended, whatever becomes of the pod."""
        self.ended_early, self.removal = True, Removal.NONE

    def end(self, stage: Stage, seen: Sequence[ObservedTask]) -> None:
        self.stage = stage
        self.observed = {ref_of(task): task for task in seen}

    def _cancelled(self, ref: TaskRef) -> ObservedTask | None:
        stop = self.stopping
        if stop is None:
            return None
        return observed_task(ref, stop.phase, reason=stop.reason, message=stop.message)


class RunTable:
    """All runs by fulfilment; `living` and `dying` count the tasks that are alive, desired or not."""

    def __init__(self) -> None:
        self._runs: dict[str, PodRun] = {}
        self.living = self.dying = 0

    def all(self) -> list[PodRun]:
        return list(self._runs.values())

    def get(self, identity: str) -> PodRun | None:
        return self._runs.get(identity)

    def add(self, run: PodRun) -> PodRun:
        self._runs[run.id] = run
        self.count(run)
        return run

    def count(self, run: PodRun) -> None:
        """Counts the run anew: something of it changed."""
        self._set_count(run, run.count())

    def remove(self, run: PodRun) -> None:
        if self._runs.get(run.id) is run:
            del self._runs[run.id]
            self._set_count(run, (0, 0))

    def _set_count(self, run: PodRun, count: tuple[int, int]) -> None:
        self.living += count[0] - run.counted[0]
        self.dying += count[1] - run.counted[1]
        run.counted = count


def run_of_pod(pod: Json, identity: str, target: str) -> PodRun:
    """The run of a pod of this target that neither the joblet nor its journal knows."""
    order = pod["metadata"]["labels"].get(ORDER, "")
    return PodRun(Intent(fulfilment=identity, order=order, target=target, tasks=refs_of(pod)), Stage.WATCHED)


def _over(task: ObservedTask) -> bool:
    return task.phase not in ALIVE


def _phase(pod: Json | None) -> str:
    return str((pod or {}).get("status", {}).get("phase", ""))
