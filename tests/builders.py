"""Objects for tests, said in few words: `an_order().of(3).jobs(cpu=2).build()`.

What a test does not say is filled in so that the object is sound. Identities increase in the order of making.
"""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any, Self

import msgspec

from controlplane.engine.rules.book import Book
from controlplane.engine.rules.facts import TargetFacts
from controlplane.engine.signature import Signature
from controlplane.engine.target_columns import TargetColumns
from controlplane.engine.world import TargetRow, World
from controlplane.model.fulfilment import Claim, Ended, EndedTask, Fulfilment, Observed, ObservedTask, TaskRef
from controlplane.model.identity import Mint
from controlplane.model.job import Job
from controlplane.model.order import Order, Resolved, ResolvedJob
from controlplane.model.quantity import Number
from controlplane.model.resource import Resource
from controlplane.model.rule import Rule
from controlplane.model.settings import Settings
from controlplane.model.target import Live, Target

NOW = "2026-01-01T00:00:00.000Z"
MILLISECONDS = 1_767_225_600_000  # NOW
_mint = Mint(lambda: MILLISECONDS, bytes)
_session = itertools.count(1)


def an_identity() -> str:
    return _mint.make()


@dataclass(frozen=True)
class OrderBuilder:
    identity: str = field(default_factory=an_identity)
    count: int = 1
    resolved: tuple[ResolvedJob, ...] = ()
    resources: tuple[Resource, ...] = ()
    held: tuple[str, ...] = ()
    env: tuple[tuple[str, str], ...] = ()
    image: str = ""
    drivers: tuple[str, ...] = ()
    policy: str | None = None
    job_policy: str | None = None
    waits_for: tuple[str, ...] = ()
    begins: str | None = None
    order_priority: int = 50
    cancel: bool = False
    pause: bool = False
    pack: int = 1

    def of(self, count: int) -> Self:
        """How many tasks the job that follows has."""
        return replace(self, count=count)

    def jobs(self, **requests: Number) -> Self:
        """One more job, `count` times, with all that was said about jobs before."""
        job = Job(
            name=f"job-{len(self.resolved)}",
            command=("true",),
            image=self.image,
            env=dict(self.env),
            requests=dict(requests),
            target_policy=self.job_policy,
            drivers=self.drivers,
            resources=self.held,
        )
        return replace(self, resolved=(*self.resolved, ResolvedJob(job=job, count=self.count, after=self.waits_for)))

    def holding(self, *names: str) -> Self:
        """The jobs that follow need these unique resources."""
        known = {resource.name for resource in self.resources}
        new = tuple(Resource(name=name, key=name, value="1", unique=True) for name in names if name not in known)
        return replace(self, held=names, resources=(*self.resources, *new))

    def after(self, *names: str) -> Self:
        """The jobs that follow wait for these."""
        return replace(self, waits_for=names)

    def not_before(self, moment: str) -> Self:
        return replace(self, begins=moment)

    def with_env(self, **env: str) -> Self:
        return replace(self, env=tuple(env.items()))

    def with_image(self, image: str) -> Self:
        return replace(self, image=image)

    def with_drivers(self, *drivers: str) -> Self:
        return replace(self, drivers=drivers)

    def with_job_policy(self, policy: str) -> Self:
        return replace(self, job_policy=policy)

    def strict(self, target: str) -> Self:
        return replace(self, policy=f"strict:{target}")

    def packed(self, pack: int) -> Self:
        """Up to so many tasks share a fulfilment."""
        return replace(self, pack=pack)

    def with_priority(self, priority: int) -> Self:
        return replace(self, order_priority=priority)

    def cancelled(self) -> Self:
        return replace(self, cancel=True)

    def paused(self) -> Self:
        return replace(self, pause=True)

    def build(self) -> Order:
        jobs = self.resolved or self.jobs(cpu=1).resolved
        resolved = msgspec.json.encode(Resolved(jobs=jobs, resources=self.resources, pack=self.pack))
        digest = hashlib.sha256(resolved).hexdigest()
        return Order(
            id=self.identity,
            priority=self.order_priority,
            created=NOW,
            target_policy=self.policy,
            not_before=self.begins,
            orchestration="push",
            cancel=self.cancel,
            paused=self.pause,
            tasks_total=sum(job.count for job in jobs),
            digest=digest,
            resolved_digest=digest,
            resolved=msgspec.Raw(resolved),
        )


def an_order() -> OrderBuilder:
    return OrderBuilder()


@dataclass(frozen=True)
class FulfilmentBuilder:
    """Of tasks of one order; the same words make what its joblet observes and how it ends."""

    order: str
    target: str = "t1"
    identity: str = field(default_factory=an_identity)
    tasks: tuple[TaskRef, ...] = ()
    requests: tuple[tuple[str, Number], ...] = (("cpu", 1),)
    holds: tuple[str, ...] = ()
    want: str = "run"

    def on(self, target: str) -> Self:
        return replace(self, target=target)

    def task(self, index: int, *, job: str = "job-0", attempt: int = 1) -> Self:
        return replace(self, tasks=(*self.tasks, TaskRef(job=job, index=index, attempt=attempt)))

    def requesting(self, **requests: Number) -> Self:
        return replace(self, requests=tuple(requests.items()))

    def holding(self, *names: str) -> Self:
        return replace(self, holds=names)

    def stopping(self) -> Self:
        return replace(self, want="stop")

    def build(self) -> Fulfilment:
        return Fulfilment(
            id=self.identity,
            epoch=1,
            cycle=1,
            order=self.order,
            target=self.target,
            tasks=self.tasks,
            requests=dict(self.requests),
            holds=self.holds,
            want=self.want,
        )

    def observed(
        self, phase: str, *, report: int = 1, percent: int | None = None, reason: str = "", message: str = ""
    ) -> Observed:
        """All of its tasks are in this phase."""
        finished = NOW if phase in ("Succeeded", "Failed", "Cancelled") else ""
        tasks = tuple(
            ObservedTask(
                job=task.job,
                index=task.index,
                attempt=task.attempt,
                phase=phase,
                percent=percent,
                reason=reason,
                message=message,
                finished=finished,
            )
            for task in self.tasks
        )
        return Observed(
            id=self.identity, target=self.target, session="s", report=report, phase=phase, tasks=tasks, observed=NOW
        )

    def ended(
        self, decision: str, *, not_before: str | None = None, reason: str = "", avoid: tuple[str, ...] = ()
    ) -> Ended:
        phase = {"done": "Succeeded", "cancel": "Cancelled", "move": "Cancelled"}.get(decision, "Failed")
        tasks = tuple(
            EndedTask(
                job=task.job,
                index=task.index,
                attempt=task.attempt,
                phase=phase,
                decision=decision,
                not_before=not_before,
                reason=reason,
                avoid=avoid,
            )
            for task in self.tasks
        )
        return Ended(id=self.identity, order=self.order, target=self.target, epoch=1, cycle=1, tasks=tasks, ended=NOW)

    def claims(self) -> tuple[Claim, ...]:
        return tuple(
            Claim(resource=name, fulfilment=self.identity, order=self.order, target=self.target, epoch=1)
            for name in self.holds
        )


def a_fulfilment(order: str) -> FulfilmentBuilder:
    return FulfilmentBuilder(order)


def a_target(name: str, *, slots: int | None = None, **capacity: Number) -> Target:
    return Target(name=name, id=an_identity(), driver="process", capacity=capacity, max_fulfilments=slots)


def a_session(target: str, **capacity: Number) -> Live:
    session = f"{next(_session):x}"
    return Live(target=target, session=session, instance=session, secret_digest="", driver="process", capacity=capacity)


A_MOMENT = datetime(2026, 1, 5, 12, 0, tzinfo=UTC)


def a_row(
    name: str,
    *,
    slots: int | None = None,
    ready: bool = True,
    driver: str = "process",
    region: str = "",
    labels: Mapping[str, str] | None = None,
    **free: Number,
) -> TargetRow:
    """One target as the engine sees it, with nothing placed on it."""
    facts = TargetFacts(name=name, region=region, driver=driver, labels=labels or {}, capacity=free)
    return TargetRow(facts, ready, "Ready" if ready else "Suspect", free, free, slots)


def a_world(
    *rows: TargetRow,
    held: tuple[str, ...] = (),
    rules: Iterable[Rule] = (),
    settings: Settings | None = None,
    **known: Any,
) -> World:
    return World(
        revision=1,
        now=A_MOMENT,
        settings=settings or Settings(),
        floor=TargetColumns(tuple(row.facts for row in rows)),
        targets=rows,
        held=dict.fromkeys(held),
        book=Book.of(rules),
        **known,
    )


def a_signature(
    *,
    policy: str = "any",
    drivers: tuple[str, ...] = (),
    unique: tuple[str, ...] = (),
    more: Mapping[str, Any] | None = None,
    **requests: Number,
) -> Signature:
    """`more` are fields that few ask for."""
    return Signature(tuple(sorted(requests.items())), policy, drivers, unique, **(more or {}))
