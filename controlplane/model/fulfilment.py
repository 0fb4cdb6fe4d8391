"""Fulfilment: one Pod's worth of tasks of one order, placed on one target in one cycle; and what became of it."""

from __future__ import annotations

import msgspec
from msgspec import field

from controlplane.model.job import Constraint, Constraints, Toleration
from controlplane.model.object import Object, Part
from controlplane.model.quantity import Number


class TaskRef(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One attempt of one task."""

    job: str
    index: int
    attempt: int


class TaskSpec(Part, frozen=True, kw_only=True):
    """What a joblet needs to run the tasks of one job. `environment` holds the job's env and its resources.

    `files` are resources to be mounted, by path. `nodes`, `tolerations` and `image_pull_secrets` matter to clusters.
    """

    command: tuple[str, ...] = ()
    image: str = ""
    environment: dict[str, str] = {}
    requests: dict[str, Number] = {}
    time_limit: Number | None = None
    files: dict[str, str] = {}
    nodes: Constraints | None = None
    tolerations: tuple[Toleration, ...] = ()
    image_pull_secrets: tuple[str, ...] = ()


class TaskStop(Part, frozen=True, kw_only=True):
    """One task of several has to stop, the others go on."""

    job: str
    index: int
    reason: str = ""


class Traits(Part, frozen=True, kw_only=True):
    """What its neighbours on the target may ask of it, as its job said when it was placed."""

    labels: dict[str, str] = {}
    class_: str = field(default="", name="class")
    exclusive: bool = False
    preemptible: bool = False
    anti_affinity: tuple[Constraint, ...] = ()


class Fulfilment(Object, tag="Fulfilment", frozen=True, kw_only=True):
    """`desired/<target>/<id>`: all that a joblet follows. `holds` are the unique resources claimed for it.

    `requests` is what its tasks request together. All of them stop when `want` says so, single ones when `stop` does.
    """

    id: str
    epoch: int
    cycle: int
    order: str
    target: str
    tasks: tuple[TaskRef, ...]
    jobs: dict[str, TaskSpec] = {}
    requests: dict[str, Number] = {}
    holds: tuple[str, ...] = ()
    owner: str = ""
    traits: Traits | None = None
    want: str = "run"
    reason: str = ""
    created: str = ""
    stop: tuple[TaskStop, ...] = ()

    def why_stop(self, job: str, index: int) -> str | None:
        """Why the task has to stop; None when it does not."""
        if self.want == "stop":
            return self.reason
        return next((one.reason for one in self.stop if (one.job, one.index) == (job, index)), None)


class ObservedTask(Part, frozen=True, kw_only=True):
    """What the joblet saw of one attempt. Phases: Starting, Running, Succeeded, Failed, Cancelled."""

    job: str
    index: int
    attempt: int
    phase: str
    percent: int | None = None
    exit_code: int | None = None
    reason: str = ""
    message: str = ""
    artefacts: tuple[str, ...] = ()
    started: str = ""
    finished: str = ""


class Observed(Object, tag="Observed", frozen=True, kw_only=True):
    """`inventory/<target>/<id>`. `report` counts the reports of this fulfilment, so that a repeated one is known."""

    id: str
    target: str
    session: str
    report: int
    phase: str
    tasks: tuple[ObservedTask, ...]
    observed: str = ""


class EndedTask(Part, frozen=True, kw_only=True):
    """How one attempt ended and what was decided: done, ignore, retry, move, hold, fail, fail_order or cancel.

    `policy` names the policy that decided, `why` says it for a person; `avoid` are targets where the next attempt does
    not go.
    """

    job: str
    index: int
    attempt: int
    phase: str
    decision: str
    reason: str = ""
    message: str = ""
    exit_code: int | None = None
    percent: int | None = None
    artefacts: tuple[str, ...] = ()
    started: str = ""
    finished: str = ""
    not_before: str | None = None
    policy: str = ""
    why: str = ""
    avoid: tuple[str, ...] = ()


class Ended(Object, tag="Ended", frozen=True, kw_only=True):
    """`status/ended/<order>/<fulfilment>`: written in the transaction that releases the fulfilment."""

    id: str
    order: str
    target: str
    epoch: int
    cycle: int
    tasks: tuple[EndedTask, ...]
    ended: str


class Claim(Object, tag="Claim", frozen=True, kw_only=True):
    """`claims/<resource>`: who holds a unique resource. Made and deleted with the placement and the release."""

    resource: str
    fulfilment: str
    order: str
    target: str
    epoch: int
