"""Order: the intention to run a packet once, with all that it resolved to when it was submitted.

`resolved` stays encoded: orders of the same packet carry the same bytes, and readers keep one decoded copy per digest.
"""

from __future__ import annotations

import msgspec

from controlplane.model.job import FailurePolicy, Job
from controlplane.model.object import Object, Part
from controlplane.model.packet import Packet
from controlplane.model.quantity import Number
from controlplane.model.resource import Resource
from controlplane.model.schedule import Schedule


class ResolvedJob(Part, frozen=True, kw_only=True):
    """One job of the packet as it was at submission; its `name` is unique in the order, `count` tasks run it."""

    job: Job
    count: int = 1
    after: tuple[str, ...] = ()


class Resolved(Part, frozen=True, kw_only=True):
    jobs: tuple[ResolvedJob, ...] = ()
    resources: tuple[Resource, ...] = ()
    gang: bool = False
    pack: int = 1

    def task_count(self) -> int:
        return sum(job.count for job in self.jobs)


class OrderRequest(Object, tag="Order", frozen=True, kw_only=True):
    """An order as a client sends it; nothing is filled in yet."""

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
    """Tasks of one job: the one with the index, all of them without."""

    job: str
    index: int | None = None


class Move(Part, frozen=True, kw_only=True):
    """The attempt is to end where it is; the next one avoids that target, and goes to `to` if that is said."""

    job: str
    index: int
    attempt: int
    to: str = ""


class Release(Part, frozen=True, kw_only=True):
    """Tasks that were held up to that revision may go on: one, those of a job, or, without a job, all of the order."""

    until: int
    job: str = ""
    index: int | None = None


class Stopped(Part, frozen=True, kw_only=True):
    """A person's word that nothing of this attempt runs any more, wherever it was placed."""

    job: str
    index: int
    attempt: int


class Order(Object, tag="Order", frozen=True, kw_only=True):
    """An order as stored. `packet` is the packet's name, empty for an inline one without a name.

    `resolved_digest` names the content of `resolved`; `digest` is that of the request as sent, by which a repeated
    submit is told from another order with the same identity. `cancel` and `paused` are wishes of the user, and so are
    `cancel_tasks`, `moves`, `releases` and `stopped`. `resources` are copies of what tasks that are not placed yet get
    beside what their packet and jobs name.

    One with a `schedule` is a template: it never runs itself. Its runs, which the leader makes, name it as `template`,
    with the time for which they were `scheduled` and the `epoch` that made them.
    """

    id: str
    packet: str = ""
    priority: int
    owner: str = ""
    creator: str = ""
    created: str
    labels: dict[str, str] = {}
    target_policy: str | None = None
    deadline: Number | None = None
    not_before: str | None = None
    orchestration: str
    preempts: bool = False
    failure_policies: tuple[FailurePolicy, ...] = ()
    cancel: bool = False
    paused: bool = False
    resources: tuple[Resource, ...] = ()
    cancel_tasks: tuple[TaskSelection, ...] = ()
    moves: tuple[Move, ...] = ()
    releases: tuple[Release, ...] = ()
    stopped: tuple[Stopped, ...] = ()
    tasks_total: int
    digest: str
    resolved_digest: str
    resolved: msgspec.Raw
    schedule: Schedule | None = None
    template: str = ""
    scheduled: str | None = None
    epoch: int = 0


class Reason(Part, frozen=True, kw_only=True):
    reason: str
    count: int


class Counts(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """How many tasks of an order are in each phase. All of them are always written."""

    pending: int = 0
    placed: int = 0
    running: int = 0
    succeeded: int = 0
    failed: int = 0
    cancelled: int = 0
    held: int = 0


class OrderStatus(Object, tag="OrderStatus", frozen=True, kw_only=True):
    """The folded progress of one order (the order fulfilment), written by the leader.

    `answered` is the revision of the order that this takes account of. `expired` are jobs whose waiting tasks failed,
    since they could not make the deadline any more.

    Of a recurring one: `scheduled` is the last time that was dealt with, made or not, `runs` how many were made, `next`
    when another comes. A run that gave way to a later one names that in `replaced_by`, which counts as its cancel.
    """

    order: str
    epoch: int
    phase: str
    counts: Counts
    percent: int | None = None
    started: str | None = None
    finished: str | None = None
    answered: int = 0
    expired: tuple[str, ...] = ()
    scheduled: str | None = None
    runs: int = 0
    next: str | None = None
    replaced_by: str = ""
