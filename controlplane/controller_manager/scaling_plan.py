"""What a scale policy does next: a pure function of what it sees.

More targets are made when the metric is above the threshold, no own target is empty and none is still on its way, a
step at a time with a cool-down in between; once there are as many as there may be, targets get larger. What had
nothing on it for the idle time goes again, and what needs less than it has gets smaller, unless the metric is above
the threshold: then a removal that has not gone too far is taken back. Below the minimum nothing waits for anything.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from controlplane.model.quantity import Number, show
from controlplane.model.scalepolicy import CLUSTER_API, REMOVE, Made, MadePhase, Metric, ScalePolicy

# A target whose joblet was awaited in vain for so long is given up.
GIVE_UP_SECONDS = 600.0
_EPSILON = 1e-9


@dataclass(frozen=True, slots=True)
class Place:
    """One made target. `known`: it is configured. `live`: its joblet is there. `busy`: how many fulfilments it has.

    `idle_seconds` is since when nothing was on it, `spare_seconds` since when a smaller size would have done,
    `missing_seconds` since when its joblet has been awaited.
    """

    made: Made
    known: bool = True
    live: bool = True
    busy: int = 0
    used: Mapping[str, Number] | None = None
    idle_seconds: float = 0.0
    spare_seconds: float = 0.0
    missing_seconds: float = 0.0

    @property
    def stays(self) -> bool:
        return self.made.want != REMOVE

    @property
    def up(self) -> bool:
        return self.stays and self.made.phase == MadePhase.UP and self.live


@dataclass(frozen=True, slots=True)
class Sight:
    """`policy` is None when it was deleted; `acted_seconds` since it last scaled."""

    policy: ScalePolicy | None
    places: Sequence[Place]
    waiting: int = 0
    waited_seconds: float = 0.0
    acted_seconds: float = float("inf")


@dataclass(frozen=True, slots=True)
class Grow:
    """One more target, of that capacity."""

    capacity: Mapping[str, Number]
    why: str


@dataclass(frozen=True, slots=True)
class Shrink:
    """The target takes no new work, and goes when nothing is on it."""

    target: str
    why: str


@dataclass(frozen=True, slots=True)
class Keep:
    """The target takes work again."""

    target: str
    why: str


@dataclass(frozen=True, slots=True)
class Resize:
    target: str
    capacity: Mapping[str, Number]
    why: str


Action: TypeAlias = Grow | Shrink | Keep | Resize


def plan(sight: Sight) -> list[Action]:
    policy = sight.policy
    staying = [place for place in sight.places if place.stays]
    if policy is None:
        return [Shrink(place.made.target, "its policy was deleted") for place in staying]
    useless = [(place.made.target, why) for place in staying if (why := _useless(place))]
    if useless:
        return [Shrink(target, why) for target, why in useless]
    least, most = policy.min or 0, policy.max or 0
    if len(staying) > most:
        return list(_surplus(staying, len(staying) - most, f"there must not be more than {most}"))
    if len(staying) < least:
        return _more(policy, sight, least - len(staying), f"there must be at least {least}")
    why = above(sight, policy)
    if why and any(not place.stays and place.made.phase != MadePhase.REMOVING for place in sight.places):
        room = most - len(staying)
        return _back(sight, min(policy.step or 1, room), why)
    if sight.acted_seconds < (policy.cool_down or 0):
        return []
    return _up(policy, sight, staying, why) if why else _down(policy, staying)


def _useless(place: Place) -> str:
    if place.made.phase == MadePhase.UP and not place.known:
        return "somebody deleted the target"
    if not place.live and place.missing_seconds >= GIVE_UP_SECONDS:
        return f"its joblet was awaited in vain for {GIVE_UP_SECONDS:g} s"
    return ""


def _up(policy: ScalePolicy, sight: Sight, staying: Sequence[Place], why: str) -> list[Action]:
    if any(place.made.phase != MadePhase.UP or (place.up and not place.busy) for place in staying):
        # What is on its way may be enough; where a target stays empty, more of them would not help.
        return []
    room = (policy.max or 0) - len(staying)
    if room > 0:
        return _more(policy, sight, min(policy.step or 1, room), why)
    larger = ((place, _larger(policy, place.made.capacity)) for place in _by_number(staying))
    found = [Resize(place.made.target, size, why) for place, size in larger if size is not None]
    return [*found[: policy.step or 1]]


def _down(policy: ScalePolicy, staying: Sequence[Place]) -> list[Action]:
    idle = float(policy.idle or 0)
    spare = len(staying) - (policy.min or 0)
    empty = [place for place in reversed(_by_number(staying)) if place.up and not place.busy]
    gone = [
        Shrink(place.made.target, f"nothing was on it for {idle:g} s")
        for place in empty
        if place.idle_seconds >= idle and _others_do(policy, staying, place)
    ]
    if gone and spare > 0:
        return [*gone[: min(policy.step or 1, spare)]]
    smaller = ((place, smaller_size(policy, place)) for place in _by_number(staying) if place.up)
    found = [
        Resize(place.made.target, size, f"it needed no more for {idle:g} s")
        for place, size in smaller
        if size is not None and place.spare_seconds >= idle
    ]
    return [*found[: policy.step or 1]]


def _more(policy: ScalePolicy, sight: Sight, count: int, why: str) -> list[Action]:
    """Takes back removals first, which is quicker than making a target."""
    back = _back(sight, count, why)
    return [*back, *(Grow(policy.steps()[0], why) for _ in range(count - len(back)))]


def _back(sight: Sight, count: int, why: str) -> list[Action]:
    leaving = [place for place in sight.places if not place.stays and place.made.phase != MadePhase.REMOVING]
    return [Keep(place.made.target, why) for place in _by_number(leaving)[:count]]


def _surplus(staying: Sequence[Place], count: int, why: str) -> Iterator[Action]:
    """The emptiest of them, the newest of equals."""
    newest_first = _by_number(staying)[::-1]
    ranked = sorted(newest_first, key=lambda place: place.busy)
    return (Shrink(place.made.target, why) for place in ranked[:count])


def above(sight: Sight, policy: ScalePolicy) -> str:
    """Why the metric is above the threshold; empty when it is not."""
    threshold = float(policy.threshold or 0)
    if policy.metric == Metric.QUEUE:
        return f"{sight.waiting} tasks wait, above {threshold:g}" if sight.waiting > threshold else ""
    if policy.metric == Metric.WAIT:
        waits = sight.waiting > 0 and sight.waited_seconds > threshold
        return f"the longest wait is {sight.waited_seconds:.1f} s, above {threshold:g}" if waits else ""
    up = [place for place in sight.places if place.up]
    if not up:
        # Of nothing there is no part that is in use: whether anything waits is all there is to go by.
        nothing = not any(place.stays for place in sight.places)
        return "there is no target, and tasks wait" if nothing and sight.waiting else ""
    used = utilisation(up)
    return f"{used:.0f} % are in use, above {threshold:g}" if used > threshold else ""


def utilisation(places: Sequence[Place]) -> float:
    """Of the fullest quantity the part that is in use, in percent."""
    fullest = 0.0
    for name in {name for place in places for name in place.made.capacity}:
        capacity = sum(place.made.capacity.get(name, 0) for place in places)
        used = sum((place.used or {}).get(name, 0) for place in places)
        fullest = max(fullest, 100.0 * used / capacity if capacity else 0.0)
    return fullest


def _others_do(policy: ScalePolicy, staying: Sequence[Place], leaving: Place) -> bool:
    """Whether those that are left would be below the threshold, so that what goes does not come back at once."""
    if policy.metric != Metric.UTILISATION:
        return True
    rest = [place for place in staying if place.up and place is not leaving]
    return utilisation(rest) <= float(policy.threshold or 0)


def smaller_size(policy: ScalePolicy, place: Place) -> Mapping[str, Number] | None:
    """The next smaller size, if what is on the target fits into it.

    Of a cluster with machines nobody can say which one goes: it gets smaller only while nothing is on it.
    """
    sizes = policy.steps()
    if policy.provider == CLUSTER_API and place.busy:
        return None
    below = [size for size in sizes if _within(size, place.made.capacity) and size != place.made.capacity]
    if len(sizes) < 2 or not below or not _within(place.used or {}, below[-1]):
        return None
    return below[-1]


def _larger(policy: ScalePolicy, capacity: Mapping[str, Number]) -> Mapping[str, Number] | None:
    sizes = policy.steps()
    beyond = [size for size in sizes if _within(capacity, size) and size != capacity]
    return beyond[0] if len(sizes) > 1 and beyond else None


def _within(small: Mapping[str, Number], large: Mapping[str, Number]) -> bool:
    return all(amount <= large.get(name, 0) + _EPSILON for name, amount in small.items())


def _by_number(places: Sequence[Place]) -> list[Place]:
    return sorted(places, key=lambda place: (len(place.made.target), place.made.target))


def next_seconds(sight: Sight) -> float | None:
    """When time alone may change the plan; None when nothing but a change can."""
    policy = sight.policy
    if policy is None:
        return None
    moments = [float(policy.cool_down or 0) - sight.acted_seconds]
    idle = float(policy.idle or 0)
    for place in sight.places:
        if place.stays and not place.live:
            moments.append(GIVE_UP_SECONDS - place.missing_seconds)
        if place.up and not place.busy:
            moments.append(idle - place.idle_seconds)
        if place.up and smaller_size(policy, place) is not None:
            moments.append(idle - place.spare_seconds)
    if policy.metric == Metric.WAIT and sight.waiting:
        moments.append(float(policy.threshold or 0) - sight.waited_seconds + 0.001)
    return min((moment for moment in moments if moment > 0), default=None)


def shown(capacity: Mapping[str, Number]) -> str:
    return ", ".join(f"{name} {show(name, amount)}" for name, amount in sorted(capacity.items()))
