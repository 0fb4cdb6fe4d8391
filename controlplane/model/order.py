"""Order: the intention to run a packet once, with the packet as resolved when the order was submitted.

`resolved` stays encoded: orders of the same packet carry the same bytes, and readers keep a decoded copy per digest.
"""

from __future__ import annotations

import hashlib

import msgspec

from controlplane.model import schedule, times
from controlplane.model.bounds import (
    Count,
    Duration,
    Few,
    Labels,
    Line,
    Many,
    Percent,
    PositiveCount,
    Priority,
    Revision,
    SmallCount,
    TaskCount,
    TaskIndex,
    Time,
    TimeOrEmpty,
)
from controlplane.model.errors import Invalid
from controlplane.model.job import FailurePolicy, Job
from controlplane.model.object import Object, Part
from controlplane.model.packet import Packet
from controlplane.model.quantity import Number
from controlplane.model.resource import Resource
from controlplane.model.schedule import Schedule


def content_digest(raw: bytes | msgspec.Raw) -> str:
    """Names the content, whatever object carries the content."""
    return hashlib.blake2b(raw, digest_size=16).hexdigest()


class ResolvedJob(Part, frozen=True, kw_only=True):
    """A job of the packet as it was at submission; `name` is unique in the order, `count` tasks run the job."""

    job: Job
    count: TaskCount = 1
    after: Many[Line] = ()


class Resolved(Part, frozen=True, kw_only=True):
    jobs: Many[ResolvedJob] = ()
    resources: Many[Resource] = ()
    gang: bool = False
    pack: PositiveCount = 1

    def task_count(self) -> int:
        return sum(job.count for job in self.jobs)


class OrderRequest(Object, tag="Order", frozen=True, kw_only=True):
    """An order as a client sends it, before defaults are filled in."""

    id: str = ""
    packet: str | Packet = ""
    priority: int | None = None
    owner: str = ""
    creator: str = ""
    labels: dict[str, str] = {}
    target_policy: str | None = None
    deadline: Number | None = None
    not_before: str | None = None
    orchestration: str | None = None
    preempts: bool = False
    failure_policies: tuple[FailurePolicy, ...] = ()
    schedule: Schedule | None = None


class TaskSelection(Part, frozen=True, kw_only=True):
    """Tasks of a job: with an index a single task, else all."""

    job: Line
    index: TaskIndex | None = None


class Move(Part, frozen=True, kw_only=True):
    """The attempt has to end where it is; the next attempt avoids the target, and goes to `to` if given."""

    job: Line
    index: TaskIndex
    attempt: SmallCount
    to: Line = ""


class Release(Part, frozen=True, kw_only=True):
    """Tasks that were held up to the revision may go on: a single task, a job's tasks, or all tasks of the order."""

    until: Revision
    job: Line = ""
    index: TaskIndex | None = None


class Stopped(Part, frozen=True, kw_only=True):
    """A person's word that no process of this attempt runs any more, wherever the attempt was placed."""

    job: Line
    index: TaskIndex
    attempt: SmallCount


# Fields that hold the user's wishes about an order under way.
WISHES = ("cancel", "paused", "cancel_tasks", "moves", "releases", "stopped")


class Order(Object, tag="Order", frozen=True, kw_only=True):
    """An order as stored. `packet` is the packet's name, empty for an inline packet without a name.

    `resolved_digest` names the content of `resolved`; `digest` is the digest of the request as sent, which tells a
    repeated submit from another order with the same identity. `cancel`, `paused`, `cancel_tasks`, `moves`, `releases`
    and `stopped` are wishes of the user (WISHES). `resources` are copies of resources for tasks that are not placed
    yet, beside the resources of packet and jobs.

    An order with a `schedule` is a template, which never runs itself. The leader makes the runs, which name their
    `template`, the time for which they were `scheduled` and the `epoch` that made them. `changed_by` is the subject who
    wished for the last change.
    """

    id: Line
    packet: Line = ""
    priority: Priority
    owner: Line = ""
    creator: Line = ""
    created: Time
    labels: Labels = {}
    target_policy: Line | None = None
    deadline: Duration | None = None
    not_before: TimeOrEmpty | None = None
    orchestration: Line
    preempts: bool = False
    failure_policies: Few[FailurePolicy] = ()
    cancel: bool = False
    paused: bool = False
    resources: Many[Resource] = ()
    cancel_tasks: Many[TaskSelection] = ()
    moves: Many[Move] = ()
    releases: Many[Release] = ()
    stopped: Many[Stopped] = ()
    tasks_total: TaskCount
    digest: Line
    resolved_digest: Line
    resolved: msgspec.Raw
    schedule: Schedule | None = None
    template: Line = ""
    scheduled: TimeOrEmpty | None = None
    epoch: Revision = 0
    changed_by: Line = ""

    def misfit(self) -> tuple[str, str] | None:
        """The field that breaks a rule of its own, and the rule: times sort only as the system writes them."""
        if self.not_before and not times.is_stamp(self.not_before):
            return "not_before", f"must be a time as the system writes it, not {self.not_before!r}"
        if self.schedule is not None:
            try:
                schedule.check(self.schedule)
            except Invalid as error:
                return error.field, error.rule
        return None


class Reason(Part, frozen=True, kw_only=True):
    reason: Line
    count: TaskCount


class Counts(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The number of tasks of an order in each phase. All fields are always written."""

    pending: TaskCount = 0
    placed: TaskCount = 0
    running: TaskCount = 0
    succeeded: TaskCount = 0
    failed: TaskCount = 0
    cancelled: TaskCount = 0
    held: TaskCount = 0


class OrderStatus(Object, tag="OrderStatus", frozen=True, kw_only=True):
    """The folded progress of an order (the order fulfilment), written by the leader.

    `answered` is the revision of the order that this status takes into account. `expired` are jobs whose waiting tasks
    failed because they could not make the deadline any more.

    Of a recurring order: `scheduled` is the last time dealt with, made or missed, `runs` the number of runs made,
    `next` the time of the next run. A run replaced by a later run names that run in `replaced_by`, which counts as a
    cancel.
    """

    order: Line
    epoch: Revision
    phase: Line
    counts: Counts
    percent: Percent | None = None
    started: TimeOrEmpty | None = None
    finished: TimeOrEmpty | None = None
    answered: Revision = 0
    expired: Many[Line] = ()
    scheduled: TimeOrEmpty | None = None
    runs: Count = 0
    next: TimeOrEmpty | None = None
    replaced_by: Line = ""
