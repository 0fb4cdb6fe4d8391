"""Fulfilment: a Pod's worth of tasks of an order, placed on a target in a cycle; its reports and its end."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta, field

from controlplane.model.bounds import (
    MAX_ITEMS,
    Amounts,
    Count,
    Duration,
    ExitCode,
    Few,
    Labels,
    Line,
    LongText,
    Many,
    Percent,
    Revision,
    SmallCount,
    TaskIndex,
    Text,
    Texts,
    TimeOrEmpty,
)
from controlplane.model.job import Constraint, Constraints, Toleration
from controlplane.model.object import Object, Part


class TaskRef(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """An attempt of a task."""

    job: Line
    index: TaskIndex
    attempt: SmallCount


class TaskSpec(Part, frozen=True, kw_only=True):
    """All that a joblet needs to run the tasks of a job. `environment` holds the job's env and its resources.

    `files` are resources to be mounted, by path. `nodes`, `tolerations` and `image_pull_secrets` matter to clusters.
    """

    command: Many[LongText] = ()
    image: Text = ""
    environment: Texts = {}
    requests: Amounts = {}
    time_limit: Duration | None = None
    files: Texts = {}
    nodes: Constraints | None = None
    tolerations: Few[Toleration] = ()
    image_pull_secrets: Few[Line] = ()


class TaskStop(Part, frozen=True, kw_only=True):
    """A task of several has to stop, the others go on."""

    job: Line
    index: TaskIndex
    reason: Text = ""


class Traits(Part, frozen=True, kw_only=True):
    """Traits that neighbours on the target may ask for, as the job said when it was placed."""

    labels: Labels = {}
    class_: Line = field(default="", name="class")
    exclusive: bool = False
    preemptible: bool = False
    anti_affinity: Few[Constraint] = ()


class Fulfilment(Object, tag="Fulfilment", frozen=True, kw_only=True):
    """`desired/<target>/<id>`: the complete instructions of a joblet. `holds` are the claimed unique resources.

    `requests` is the sum over all tasks. All tasks stop when `want` says so, single tasks when `stop` does.
    """

    id: Line
    epoch: Revision
    cycle: Count
    order: Line
    target: Line
    tasks: Many[TaskRef]
    jobs: Annotated[dict[Line, TaskSpec], Meta(max_length=MAX_ITEMS)] = {}
    requests: Amounts = {}
    holds: Many[Line] = ()
    owner: Line = ""
    traits: Traits | None = None
    want: Line = "run"
    reason: Text = ""
    created: TimeOrEmpty = ""
    stop: Many[TaskStop] = ()

    def why_stop(self, job: str, index: int) -> str | None:
        """Why the task has to stop; None when it has not."""
        if self.want == "stop":
            return self.reason
        return next((stop.reason for stop in self.stop if (stop.job, stop.index) == (job, index)), None)


class ObservedTask(Part, frozen=True, kw_only=True):
    """A joblet's report about an attempt. Phases: Starting, Running, Succeeded, Failed, Cancelled."""

    job: Line
    index: TaskIndex
    attempt: SmallCount
    phase: Line
    percent: Percent | None = None
    exit_code: ExitCode | None = None
    reason: LongText = ""
    message: LongText = ""
    artefacts: Many[Text] = ()
    started: TimeOrEmpty = ""
    finished: TimeOrEmpty = ""


class Observed(Object, tag="Observed", frozen=True, kw_only=True):
    """`inventory/<target>/<id>`. `report` numbers the reports of the fulfilment, so that repetitions are known."""

    id: Line
    target: Line
    session: Line
    report: Count
    phase: Line
    tasks: Many[ObservedTask]
    observed: TimeOrEmpty = ""


class EndedTask(Part, frozen=True, kw_only=True):
    """The end of an attempt and the decision: done, ignore, retry, move, hold, fail, fail_order or cancel.

    `policy` names the deciding policy, `why` explains the decision to a person; `avoid` are targets that the next
    attempt avoids.
    """

    job: Line
    index: TaskIndex
    attempt: SmallCount
    phase: Line
    decision: Line
    reason: LongText = ""
    message: LongText = ""
    exit_code: ExitCode | None = None
    percent: Percent | None = None
    artefacts: Many[Text] = ()
    started: TimeOrEmpty = ""
    finished: TimeOrEmpty = ""
    not_before: TimeOrEmpty | None = None
    policy: Text = ""
    why: Text = ""
    avoid: Many[Line] = ()


class Ended(Object, tag="Ended", frozen=True, kw_only=True):
    """`status/ended/<order>/<fulfilment>`: written in the transaction that releases the fulfilment."""

    id: Line
    order: Line
    target: Line
    epoch: Revision
    cycle: Count
    tasks: Many[EndedTask]
    ended: TimeOrEmpty


class Preemption(Object, tag="Preemption", frozen=True, kw_only=True):
    """`status/preemptions/<target>/<fulfilment>`: a fulfilment that is stopped so that a task of the order `by` gets
    the room. Written with the stop, deleted by the first cycle after the end of all fulfilments of the same `room`.

    `room` names the fulfilments that make room for a task together: the identity of the first.
    """

    fulfilment: Line
    order: Line
    target: Line
    by: Line
    job: Line
    room: Line
    epoch: Revision
    cycle: Count


class Claim(Object, tag="Claim", frozen=True, kw_only=True):
    """`claims/<resource>`: the holder of a unique resource. Made and deleted with the placement and the release."""

    resource: Line
    fulfilment: Line
    order: Line
    target: Line
    epoch: Revision
