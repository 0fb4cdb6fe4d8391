"""Cycle after cycle without etcd: what the engine decides is bound as the scheduler does, and told to the ledgers."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from types import MappingProxyType
from typing import Any

import msgspec

from controlplane.engine.decide import decide
from controlplane.engine.decision import Decision
from controlplane.model import times
from controlplane.model.fulfilment import Ended, EndedTask, Fulfilment
from controlplane.model.job import Constraint, Job
from controlplane.model.order import Order, Resolved, ResolvedJob
from controlplane.model.resource import Resource
from controlplane.model.rule import Effect, Rule
from controlplane.model.settings import Settings
from controlplane.model.target import Target, TargetStatus
from controlplane.scheduler.binder import Binder, Stamp
from controlplane.store import keys
from controlplane.store.transaction import Item
from controlplane.survey.explaining import survey
from tests.builders import A_MOMENT, a_session, an_identity
from tests.picture import Content, Told


def label(name: str, op: str, *values: str) -> Constraint:
    return Constraint(label=name, op=op, values=values)


def a_job(name: str = "job", **said: Any) -> Job:
    """Asks for one cpu, unless `requests` says otherwise."""
    return Job(name=name, command=("true",), **{"requests": {"cpu": 1}, **said})


def order_of(
    *jobs: tuple[int, Job],
    gang: bool = False,
    pack: int = 1,
    after: Mapping[str, tuple[str, ...]] = MappingProxyType({}),
    **said: Any,
) -> Order:
    """So many tasks of each job; `after` names the jobs that a job waits for."""
    found = tuple(ResolvedJob(job=job, count=count, after=after.get(job.name, ())) for count, job in jobs)
    unique = sorted({name for _, job in jobs for name in job.resources})
    resources = tuple(Resource(name=name, key=name, value="1", unique=True) for name in unique)
    resolved = msgspec.json.encode(Resolved(jobs=found, resources=resources, gang=gang, pack=pack))
    digest = hashlib.sha256(resolved).hexdigest()
    return Order(
        id=an_identity(),
        orchestration="push",
        tasks_total=sum(count for count, _ in jobs),
        digest=digest,
        resolved_digest=digest,
        resolved=msgspec.Raw(resolved),
        **{"priority": 50, "owner": "somebody", **said},
    )


class Stage:
    def __init__(self, **settings: Any) -> None:
        self.told = Told()
        self.now: datetime = A_MOMENT
        self.told.write({keys.SETTINGS: Settings(**settings)})
        self._binder = Binder(self.told.ledgers, an_identity)
        self._cycles = 0

    def target(self, name: str, *, cpu: float = 4, **said: Any) -> None:
        """One that is ready, with so many cpus unless `capacity` says otherwise."""
        target = Target(name=name, **{"driver": "process", "capacity": {"cpu": cpu}, **said})
        self.told.write(
            {
                keys.config("targets", name): target,
                keys.target_status(name): TargetStatus(target=name, epoch=1, phase="Ready"),
                keys.live(name): msgspec.structs.replace(a_session(name), driver=target.driver),
            }
        )

    def rule(self, name: str, when: str, **effect: Any) -> None:
        self.told.write({keys.config("rules", name): Rule(name=name, when=when, then=Effect(**effect))})

    def submit(self, *jobs: tuple[int, Job], gang: bool = False, **said: Any) -> str:
        """Of two orders the older one is the one submitted first."""
        order = order_of(*jobs, gang=gang, created=times.show(self.now), **said)
        self.told.write({keys.order(order.id): order})
        return order.id

    def decide(self) -> Decision:
        backlog, world = survey(self.told.ledgers, self.now)
        return decide(world, backlog.queues())

    def cycle(self) -> Decision:
        decision = self.decide()
        self._cycles += 1
        stamp = Stamp(1, self._cycles, times.show(self.now))
        self._commit([*self._binder.items(decision.placements, stamp)])
        self._commit([*self._binder.evictions(decision.evictions, stamp)])
        self._commit([*self._binder.used_rooms(decision.used_rooms)])
        return decision

    def _commit(self, items: Iterable[Item]) -> None:
        operations = [operation for item in items for operation in (*item.then, *item.many)]
        contents: dict[str, Content] = {one.key.decode(): one.value for one in operations}
        if contents:
            self.told.write(contents)

    def live(self, order: str) -> list[Fulfilment]:
        return [live.fulfilment for live in self.told.ledgers.orders[order].live.values()]

    def where(self, order: str, job: str | None = None) -> Counter[str]:
        """On which targets how many of its tasks are."""
        return Counter(one.target for one in self.live(order) if job in (None, one.tasks[0].job))

    def end(
        self, *fulfilments: Fulfilment, phase: str = "Succeeded", decision: str = "done", again_at: str | None = None
    ) -> None:
        """`again_at` is the moment of the next try, for a decision to retry."""
        fate: dict[str, Any] = {"phase": phase, "decision": decision, "not_before": again_at}
        for one in fulfilments:
            tasks = tuple(EndedTask(job=task.job, index=task.index, attempt=task.attempt, **fate) for task in one.tasks)
            ended = Ended(
                id=one.id, order=one.order, target=one.target, epoch=1, cycle=1, tasks=tasks, ended=times.show(self.now)
            )
            gone: dict[str, Content] = {keys.desired(one.target, one.id): None}
            gone |= {keys.claim(name): None for name in one.holds}
            self.told.write({keys.ended(one.order, one.id): ended, **gone})

    def stop(self) -> None:
        """What was asked to stop goes back to the queue."""
        self.end(*(one for one in self._all() if one.want == "stop"), phase="Failed", decision="retry")

    def pass_seconds(self, seconds: float) -> None:
        """What has run for as long as it may is over."""
        self.now += timedelta(seconds=seconds)
        for one in self._all():
            limits = [spec.time_limit for spec in one.jobs.values()]
            begun = times.parse(one.created, "created")
            if all(limit is not None and begun + timedelta(seconds=float(limit)) <= self.now for limit in limits):
                self.end(one)

    def _all(self) -> list[Fulfilment]:
        return [one for ledger in list(self.told.ledgers.targets.values()) for one in list(ledger.fulfilments.values())]
