"""A world of a test: targets, orders, what runs, rules and settings; as keys of etcd, and as the reference sees it."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from datetime import timedelta

import msgspec

from controlplane.model import times, windows
from controlplane.model.fulfilment import Claim, Ended, EndedTask, Fulfilment, TaskRef, TaskSpec, Traits
from controlplane.model.job import Job
from controlplane.model.order import Order, Resolved
from controlplane.model.rule import Rule
from controlplane.model.settings import Settings
from controlplane.model.target import Live, Target, TargetStatus
from controlplane.store import keys
from tests.builders import A_MOMENT
from tests.picture import Content, Told
from tests.reference import Group, Law, State
from tests.reference_places import Place, Running

NOW = A_MOMENT  # a Monday, 12:00 UTC


@dataclass(frozen=True)
class Task:
    """One attempt that runs on a target, or failed there; `age` in seconds.

    The next attempt of one that failed avoids some targets, or goes to the one that a user named.
    """

    order: str
    job: str
    index: int
    target: str
    age: int
    avoid: tuple[str, ...] = ()
    to: str = ""

    @property
    def hint(self) -> tuple[tuple[str, ...], str]:
        return self.avoid, self.to


@dataclass(frozen=True)
class Scene:
    targets: tuple[Target, ...]
    unready: frozenset[str]
    orders: tuple[Order, ...]
    running: tuple[Task, ...]
    failed: tuple[Task, ...]
    rules: tuple[tuple[Rule, Law], ...]
    settings: Settings

    def job(self, order: str, name: str) -> Job:
        return next(found.job for found in self.resolved(order).jobs if found.job.name == name)

    def order(self, identity: str) -> Order:
        return next(order for order in self.orders if order.id == identity)

    def resolved(self, order: str) -> Resolved:
        return msgspec.json.decode(self.order(order).resolved, type=Resolved)

    def contents(self) -> dict[str, Content]:
        """The keys of etcd, as a list would give them."""
        found: dict[str, Content] = {keys.SETTINGS: self.settings}
        found |= {keys.config("rules", rule.name): rule for rule, _ in self.rules}
        for target in self.targets:
            phase = "Suspect" if target.name in self.unready else "Ready"
            found[keys.config("targets", target.name)] = target
            found[keys.target_status(target.name)] = TargetStatus(target=target.name, epoch=1, phase=phase)
            found[keys.live(target.name)] = _session(target)
        found |= {keys.order(order.id): order for order in self.orders}
        for at, task in enumerate(self.running):
            fulfilment = self.fulfilment(task, f"f{at}")
            found[keys.desired(task.target, fulfilment.id)] = fulfilment
            for name in fulfilment.holds:
                found[keys.claim(name)] = Claim(
                    resource=name, fulfilment=fulfilment.id, order=task.order, target=task.target, epoch=1
                )
        for at, task in enumerate(self.failed):
            found[keys.ended(task.order, f"e{at}")] = _ended(task, f"e{at}")
        return found

    def told(self) -> Told:
        told = Told()
        told.write(self.contents())
        return told

    def fulfilment(self, task: Task, identity: str) -> Fulfilment:
        job = self.job(task.order, task.job)
        return Fulfilment(
            id=identity,
            epoch=1,
            cycle=1,
            order=task.order,
            target=task.target,
            tasks=(TaskRef(job=task.job, index=task.index, attempt=1),),
            jobs={task.job: TaskSpec(time_limit=job.time_limit)},
            requests=job.requests or {},
            holds=job.resources,
            owner=self.order(task.order).owner,
            traits=Traits(
                labels=job.labels,
                class_=job.class_,
                exclusive=job.exclusive,
                preemptible=job.preemptible,
                anti_affinity=job.anti_affinity,
            ),
            created=times.show(NOW - timedelta(seconds=task.age)),
        )

    # As the reference sees it -------------------------------------------------------------------------------------

    def state(self) -> State:
        owners: dict[str, list[Job]] = {}
        for task in self.running:
            owners.setdefault(self.order(task.order).owner, []).append(self.job(task.order, task.job))
        held = {name for task in self.running for name in self.job(task.order, task.job).resources}
        return State([self.place(target) for target in self.targets], self.laws(), self.settings, held, owners)

    def laws(self) -> tuple[Law, ...]:
        return tuple(law for _, law in self.rules)

    def place(self, target: Target) -> Place:
        implicit = {"name": target.name, "region": target.region, "driver": target.driver}
        since = self.settings.failure_memory
        return Place(
            name=target.name,
            region=target.region,
            driver=target.driver,
            labels={name: value for name, value in implicit.items() if value} | target.labels,
            capacity=target.capacity or {},
            slots=target.max_fulfilments,
            ready=target.name not in self.unready and not target.cordoned,
            opened=windows.is_open(target.windows, NOW),
            failures=sum(task.target == target.name and task.age <= since for task in self.failed),
            running=[self._running(task) for task in self.running if task.target == target.name],
        )

    def _running(self, task: Task) -> Running:
        job = self.job(task.order, task.job)
        ends_in = None if job.time_limit is None else max(0.0, float(job.time_limit) - task.age)
        return Running(job, task.order, ends_in)

    def groups(self) -> list[Group]:
        """What waits and may go now."""
        return [
            group
            for order in self.orders
            if not order.paused and (order.not_before or "") <= times.show(NOW)
            for group in self._groups(order)
        ]

    def _groups(self, order: Order) -> list[Group]:
        resolved = self.resolved(order.id)
        groups = []
        for position, found in enumerate(resolved.jobs):
            raised = [law.effect.priority or 0 for law in self.laws() if law.about(found.job)]
            if _is_late(order, found.job):
                continue
            gone = [*self.running, *(task for task in self.failed if any(task.hint))]
            left = found.count - sum((task.order, task.job) == (order.id, found.job.name) for task in gone)
            group = Group(
                priority=min(100, max(1, order.priority + sum(raised))),
                owner=order.owner,
                rank=(_deadline(order), order.created, order.id, position),
                job=found.job,
                count=left,
                policy=order.target_policy or found.job.target_policy or "any",
                unique=frozenset(found.job.resources),
                gang=resolved.gang,
            )
            groups.append(group)
        waiting = [group for group in groups if group.count]
        waiting += self._detoured(order, groups)
        # A gang goes as one, as its first waiting job ranks.
        return [replace(group, priority=waiting[0].priority) if group.gang else group for group in waiting]

    def _detoured(self, order: Order, groups: list[Group]) -> list[Group]:
        """Those that may not go where they were, or must go to one target: they rank behind all the others."""
        found: list[Group] = []
        for group in groups:
            tasks = [task for task in self.failed if (task.order, task.job) == (order.id, group.job.name)]
            hints = Counter(task.hint for task in tasks if any(task.hint))
            for (avoid, to), count in sorted(hints.items()):
                rank = (*group.rank[:3], len(self.resolved(order.id).jobs) + len(found))
                policy = f"strict:{to}" if to else group.policy
                found.append(replace(group, rank=rank, count=count, policy=policy, avoid=avoid))
        return found


def _is_late(order: Order, job: Job) -> bool:
    if order.deadline is None:
        return False
    end = times.parse(order.created, "created") + timedelta(seconds=float(order.deadline))
    return NOW + timedelta(seconds=float(job.time_limit or 0)) > end


def _deadline(order: Order) -> str:
    if order.deadline is None:
        return "~"
    return times.show(times.parse(order.created, "created") + timedelta(seconds=float(order.deadline)))


def _session(target: Target) -> Live:
    return Live(
        target=target.name,
        session="s",
        instance="s",
        secret_digest="",
        driver=target.driver,
        capacity=target.capacity or {},
    )


def _ended(task: Task, identity: str) -> Ended:
    ended = EndedTask(job=task.job, index=task.index, attempt=1, phase="Failed", decision="retry", avoid=task.avoid)
    return Ended(
        id=identity,
        order=task.order,
        target=task.target,
        epoch=1,
        cycle=1,
        tasks=(ended,),
        ended=times.show(NOW - timedelta(seconds=task.age)),
    )
