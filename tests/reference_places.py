"""The targets of the reference: what runs there, what room is left, and what is kept for whom.

Like the rest of the reference it imports `controlplane.model` and plain Python alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from controlplane.model.job import Constraint, Job
from controlplane.model.quantity import Number
from controlplane.model.selectors import matches

EPSILON = 1e-9


@dataclass(frozen=True)
class Running:
    """A task on a target; `ends_in` is None when nobody knows, or when it was laid in this cycle."""

    job: Job
    order: str
    ends_in: float | None = None


@dataclass
class Kept:
    """The room of a target that is kept for tasks of `whom` (job and order), `until` so many seconds from now.

    `spare` is what those tasks leave of the quantities they ask for, `slots` how many more tasks the target then takes
    (None: as many as there is room for).
    """

    until: float
    spare: dict[str, Number]
    slots: int | None
    whom: list[tuple[Job, str]]

    def is_over_in_time(self, job: Job) -> bool:
        return job.time_limit is not None and job.time_limit <= self.until

    def is_left_by(self, job: Job, order: str) -> bool:
        """Whether the kept room is still there when such a task stays."""
        if any(amount > self.spare[name] + EPSILON for name, amount in needs_of(job).items() if name in self.spare):
            return False
        if self.slots is not None and self.slots < 1:
            return False
        return not any(job.exclusive or other.exclusive for other, _ in self.whom) and not any(
            repels(job, other) or repels(other, job) or apart(job, order, other, whose) for other, whose in self.whom
        )

    def take(self, job: Job) -> None:
        for name, amount in needs_of(job).items():
            if name in self.spare:
                self.spare[name] -= amount
        if self.slots is not None:
            self.slots -= 1


@dataclass
class Place:
    """A target. `kept` is the room there that waits for somebody, if any does.

    `over` has ended at the later moment that is looked at; limits of rules count it, since time is no help there.
    """

    name: str
    region: str
    driver: str
    labels: Mapping[str, str]
    capacity: Mapping[str, Number]
    slots: int | None = None
    ready: bool = True
    opened: bool = True
    failures: int = 0
    running: list[Running] = field(default_factory=list)
    kept: Kept | None = None
    over: list[Running] = field(default_factory=list)

    def free(self, name: str) -> Number:
        return self.capacity.get(name, 0) - sum((one.job.requests or {}).get(name, 0) for one in self.running)

    def left(self, job: Job) -> float:
        """The part of the target that is left with one such task more, on average over all that it has."""
        needs = needs_of(job)
        names = [name for name, most in sorted(self.capacity.items()) if most > 0]
        parts = [(self.free(name) - needs.get(name, 0)) * (1 / self.capacity[name]) for name in names]
        return sum(parts) / max(len(parts), 1)

    def idle(self, job: Job) -> float:
        """The part of the target that is left with one such task more.

        Of all its quantities the scarcest counts; where that is the same, the scarcest of those the task asks for.
        """
        needs = needs_of(job)
        left = {
            name: (self.free(name) - needs.get(name, 0)) * (1 / most)
            for name, most in self.capacity.items()
            if most > 0
        }
        of_all = min(left.values(), default=1.0)
        of_asked = min((left[name] for name in needs if name in left), default=0.0)
        return of_all + 1e-6 * of_asked

    def has(self, constraint: Constraint) -> bool:
        return any(matches(constraint, one.job.labels) for one in self.running)


def needs_of(job: Job) -> dict[str, Number]:
    """What it really asks for: a request of nothing asks for nothing."""
    return {name: amount for name, amount in (job.requests or {}).items() if amount > 0}


def repels(job: Job, other: Job) -> bool:
    return any(matches(unwanted, other.labels) for unwanted in job.anti_affinity)


def apart(job: Job, order: str, other: Job, whose: str) -> bool:
    """Whether the two are of one order that keeps such tasks on different targets."""
    return job.spread == "order" and other.spread == "order" and order == whose
