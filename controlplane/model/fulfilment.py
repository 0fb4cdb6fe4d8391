"""Fulfilment: one Pod's worth of tasks of one order, placed on one target in one cycle; and what became of it."""

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
    """One attempt of one task."""

    job: Line
    index: TaskIndex
    attempt: SmallCount


class TaskSpec(Part, frozen=True, kw_only=True):
    """What a joblet needs to run the tasks of one job. `environment` holds the job's env and its resources.

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
    """One task of several has to stop, the others go on."""

    job: Line
    index: TaskIndex
    reason: Text = ""


class Traits(Part, frozen=True, kw_only=True):
    """What its neighbours on the target may ask of it, as its job said when it was placed."""

    labels: Labels = {}
    class_: Line = field(default="", name="class")
    exclusive: bool = False
    preemptible: bool = False
    anti_affinity: Few[Constraint] = ()


class Fulfilment(Object, tag="Fulfilment", frozen=True, kw_only=True):
    """`desired/<target>/<id>`: all that a joblet follows. `holds` are the unique resources claimed for it.

    `requests` is what its tasks request together. All of them stop when `want` says so, single ones when `stop` does.
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
        """Why the task has to stop; None when it does not."""
        if self.want == "stop":
            return self.reason
        return next((one.reason for one in self.stop if (one.job, one.index) == (job, index)), None)


class ObservedTask(Part, frozen=True, kw_only=True):
    """What the joblet saw of one attempt. Phases: Starting, Running, Succeeded, Failed, Cancelled."""

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
    """`inventory/<target>/<id>`. `report` counts the reports of this fulfilment, so that a repeated one is known."""

    id: Line
    target: Line
    session: Line
    report: Count
    phase: Line
    tasks: Many[ObservedTask]
    observed: TimeOrEmpty = ""


class EndedTask(Part, frozen=True, kw_only=True):
    """How one attempt ended and what was decided: done, ignore, retry, move, hold, fail, fail_order or cancel.

    `policy` names the policy that decided, `why` says it for a person; `avoid` are targets where the next attempt does
    not go.
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


class Claim(Object, tag="Claim", frozen=True, kw_only=True):
    """`claims/<resource>`: who holds a unique resource. Made and deleted with the placement and the release."""

    resource: Line
    fulfilment: Line
    order: Line
    target: Line
    epoch: Revision
