"""A second chooser: slow, obvious, one task at a time, to compare the engine with.

Imports `controlplane.model` and plain Python alone, so that it shares no mistake with the engine. Here is what refuses
a task and which target is best; in `tests/reference_places.py` what a target is; in `tests/chooser.py` who is served
when, and whose room is kept. Together they are the specification. Nobody is preempted.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from controlplane.model.job import Job
from controlplane.model.quantity import Number
from controlplane.model.rule import Effect
from controlplane.model.selectors import match_all, matches
from controlplane.model.settings import Quota, Settings
from tests.reference_places import EPSILON, Place, Running, apart, needs_of, repels

QUANTUM = 0.005
PLENTY = 1 << 40
STANDING = ("TargetPolicy", "DriverUnsupported", "RegionMismatch", "ConstraintUnmet", "RuleForbids", "RuleRequires")
PASSING = ("TargetNotReady", "WindowClosed", "AvoidedTarget", "Affinity", "AntiAffinity", "Exclusive", "Spread")
NEARNESS = (*STANDING, *PASSING, "InsufficientCapacity", "TargetFull", "RuleLimit", "Reserved")
HELPED_BY_TIME = {"InsufficientCapacity", "TargetFull", "Reserved", "Exclusive", "AntiAffinity", "Spread"}


@dataclass(frozen=True)
class Law:
    """A rule: `about` says for which jobs it holds, `where` on which targets."""

    name: str
    effect: Effect
    about: Callable[[Job], bool]
    where: Callable[[Mapping[str, str]], bool] = lambda labels: True


@dataclass(frozen=True)
class Group:
    """Waiting tasks of one job of one order. Two groups with the same wish are alike to every target."""

    priority: int
    owner: str
    rank: tuple[str, str, str, int]
    job: Job
    count: int
    policy: str = "any"
    unique: frozenset[str] = frozenset()
    gang: bool = False
    avoid: tuple[str, ...] = ()

    @property
    def order(self) -> str:
        return self.rank[2]

    @property
    def wish(self) -> tuple[object, ...]:
        fields = [getattr(self.job, name) for name in self.job.__struct_fields__ if name not in ("name", "resources")]
        spread = self.order if self.job.spread == "order" else ""
        return (repr(fields), self.policy, self.unique, spread, self.avoid)

    @property
    def needs(self) -> dict[str, Number]:
        return needs_of(self.job)


@dataclass
class State:
    """All that placing a task changes."""

    places: list[Place]
    laws: tuple[Law, ...]
    settings: Settings
    held: set[str]
    owners: dict[str, list[Job]]
    placed: list[tuple[str, str, str]] = field(default_factory=list)

    def put(self, group: Group, place: Place) -> None:
        if place.kept is not None and not place.kept.is_over_in_time(group.job):
            place.kept.take(group.job)
        place.running.append(Running(group.job, group.order))
        self.held |= group.unique
        self.owners.setdefault(group.owner, []).append(group.job)
        self.placed.append((group.order, group.job.name, place.name))

    # What refuses -------------------------------------------------------------------------------------------------

    def refusal(self, group: Group, place: Place) -> str | None:
        """The first filter that refuses one such task there."""
        return next((reason for reason in NEARNESS if self.refuses(reason, group, place)), None)

    def refuses(self, reason: str, group: Group, place: Place) -> bool:
        job = group.job
        constraints = job.constraints
        match reason:
            case "TargetPolicy":
                return group.policy not in ("any", f"strict:{place.name}")
            case "DriverUnsupported":
                unsupported = bool(job.drivers) and place.driver not in job.drivers
                return unsupported or (place.driver == "kubernetes" and not job.image)
            case "RegionMismatch":
                return bool(job.region) and place.region != job.region
            case "ConstraintUnmet":
                return constraints is not None and not match_all(constraints.hard, place.labels)
            case "RuleForbids":
                return any(law.effect.forbid and law.about(job) and law.where(place.labels) for law in self.laws)
            case "RuleRequires":
                return any(law.effect.require and law.about(job) and not law.where(place.labels) for law in self.laws)
            case "TargetNotReady":
                return not place.ready
            case "WindowClosed":
                return not place.opened
            case "AvoidedTarget":
                return place.name in group.avoid and any(self._has_instead(group, other) for other in self.places)
            case "InsufficientCapacity":
                return any(place.free(name) + EPSILON < amount for name, amount in group.needs.items())
            case "TargetFull":
                return place.slots is not None and len(place.running) >= place.slots
            case "RuleLimit":
                return any(law.where(place.labels) and self._left(law) <= 0 for law in self._limits(job))
            case "Reserved":
                kept = place.kept
                return kept is not None and not kept.is_over_in_time(job) and not kept.is_left_by(job, group.order)
        return self._repelled(reason, group, place)

    def _has_instead(self, group: Group, other: Place) -> bool:
        """Whether the task may have another target, which takes work and is large enough for it."""
        if other.name in group.avoid or not other.ready or not other.opened:
            return False
        if any(other.capacity.get(name, 0) + EPSILON < amount for name, amount in group.needs.items()):
            return False
        if any(law.where(other.labels) and law.effect.limit == 0 for law in self._limits(group.job)):
            return False
        return not any(self.refuses(reason, group, other) for reason in STANDING)

    def _repelled(self, reason: str, group: Group, place: Place) -> bool:
        """Filters that look at the neighbours."""
        job = group.job
        match reason:
            case "Affinity":
                return not self.founds(job) and not all(place.has(wanted) for wanted in job.affinity)
            case "AntiAffinity":
                return any(repels(job, one.job) or repels(one.job, job) for one in place.running)
            case "Spread":
                return any(apart(job, group.order, one.job, one.order) for one in place.running)
            case _:
                return bool(place.running) and (job.exclusive or any(one.job.exclusive for one in place.running))

    def founds(self, job: Job) -> bool:
        """Whether it wants its own kind around, and no place has all that it wants."""
        return (
            bool(job.affinity)
            and all(matches(wanted, job.labels) for wanted in job.affinity)
            and not any(all(place.has(wanted) for wanted in job.affinity) for place in self.places)
        )

    def _limits(self, job: Job) -> list[Law]:
        """Limits that hold for the job somewhere."""
        limits = (law for law in self.laws if law.effect.limit is not None and law.about(job))
        return [law for law in limits if any(law.where(place.labels) for place in self.places)]

    def _left(self, law: Law) -> int:
        there = (place for place in self.places if law.where(place.labels))
        counted = (one for place in there for one in (*place.running, *place.over))
        return (law.effect.limit or 0) - sum(law.about(one.job) for one in counted)

    def at_once(self, group: Group) -> int:
        """How many may go in one round: one holder of a unique resource, no more than a limit leaves."""
        if group.unique:
            return 0 if group.unique & self.held else 1
        return min((left for law in self._limits(group.job) if (left := self._left(law)) > 0), default=PLENTY)

    # Owners -------------------------------------------------------------------------------------------------------

    def share(self, owner: str, more: Iterable[Job] = ()) -> float:
        jobs = [*self.owners.get(owner, []), *more]
        totals: Counter[str] = Counter()
        for place in self.places:
            totals.update(place.capacity)
        return max(
            (sum((job.requests or {}).get(name, 0) for job in jobs) / total for name, total in totals.items() if total),
            default=0.0,
        )

    def quota(self, group: Group) -> int:
        """How many more such tasks the owner's quota allows."""
        said = self.settings.quotas
        quota = said.get(group.owner) or said.get("*") or Quota()
        jobs = self.owners.get(group.owner, [])
        most = PLENTY if quota.live_tasks is None else quota.live_tasks - len(jobs)
        for name, amount in group.needs.items():
            if name in quota.quantities:
                left = quota.quantities[name] - sum((job.requests or {}).get(name, 0) for job in jobs)
                most = min(most, int((left + EPSILON) // amount))
        return max(0, most)

    # Laying -------------------------------------------------------------------------------------------------------

    def score(self, group: Group, place: Place, others: float) -> float:
        """How good the place is for one task more: how full it then is, and the other parts."""
        room = 1.0 - place.left(group.job) if self.packs else place.idle(group.job)
        return float(self.settings.weights.room) * room + others

    @property
    def packs(self) -> bool:
        return self.settings.placement == "pack"

    def others(self, group: Group, place: Place) -> float:
        """The parts of the score that do not depend on how full the place is."""
        job, weights = group.job, self.settings.weights
        score = 0.0
        soft = job.constraints.soft if job.constraints is not None else ()
        asked = [(50.0 if one.weight is None else float(one.weight), one) for one in soft]
        if sum(weight for weight, _ in asked):
            met = sum(weight for weight, one in asked if matches(one, place.labels))
            score += float(weights.soft) * (met / sum(weight for weight, _ in asked))
        if any(other.failures for other in self.places):
            score += float(weights.reliability) * (1.0 / (1.0 + place.failures))
        liked = [
            law for law in self.laws if law.effect.prefer is not None and law.about(job) and law.where(place.labels)
        ]
        score += float(weights.rules) * sum(float(law.effect.prefer or 0) / 100 for law in liked)
        if job.hurt_by:
            hurting = sum(one.job.class_ in job.hurt_by for one in place.running)
            score += float(weights.interference) / (1.0 + hurting)
        return score

    def lay(self, group: Group, most: int) -> int:
        """Places up to so many such tasks; how many."""
        done = 0
        while done < most:
            some = min(most - done, self.at_once(group))
            able = self.best_tier(group)
            if not some or not able:
                break
            evenly = group.needs and not self.packs
            done += self.lay_evenly(group, able, some) if evenly else self.lay_in_order(group, able, some)
        return done

    def best_tier(self, group: Group) -> list[Place]:
        """Of those that take such a task the ones that its job likes best."""
        able = [place for place in self.places if self.refusal(group, place) is None]
        first = min((tier(group.job, place) for place in able), default=0)
        return [place for place in able if tier(group.job, place) == first]

    def lay_in_order(self, group: Group, able: list[Place], some: int) -> int:
        """The best place gets all it takes, then the next; or, of who asks for nothing, each its share."""
        able = sorted(able, key=lambda place: -self.score(group, place, self.others(group, place)))
        able = able[:1] if self.founds(group.job) else able
        share = some if self.packs else -(-some // len(able))
        done = 0
        for place in able:
            here = 0
            while here < share and done < some and self.refusal(group, place) is None:
                self.put(group, place)
                here += 1
                done += 1
        return done

    def lay_evenly(self, group: Group, able: list[Place], some: int) -> int:
        """Each task to the place that is the best one for it, of equals the first."""
        others = {place.name: self.others(group, place) for place in able}
        by_room = bool(self.settings.weights.room)
        if not by_room:
            # How full places are only decides between those that are equal otherwise.
            able = [place for place in able if others[place.name] == max(others.values())]

        def worth(place: Place) -> float:
            return self.score(group, place, others[place.name]) if by_room else place.idle(group.job)

        able = [max(able, key=worth)] if self.founds(group.job) else able
        done = 0
        while done < some:
            taking = [place for place in able if self.refusal(group, place) is None]
            if not taking:
                break
            self.put(group, max(taking, key=worth))
            done += 1
        # The tasks of a run are alike: the first ones count as placed on the first places.
        start, order = len(self.placed) - done, [place.name for place in self.places]
        self.placed[start:] = sorted(self.placed[start:], key=lambda one: order.index(one[2]))
        return done

    def reason(self, group: Group) -> str:
        """Of all refusals the nearest miss."""
        if not self.places:
            return "NoTargets"
        if not self.quota(group):
            return "OwnerQuota"
        refusals = [self.refusal(group, place) for place in self.places]
        if None in refusals:
            return "Queued" if self.at_once(group) else "ResourceHeld"
        return max((refusal for refusal in refusals if refusal), key=NEARNESS.index)


def tier(job: Job, place: Place) -> int:
    return next((at for at, names in enumerate(job.prefer) if place.name in names), len(job.prefer))
