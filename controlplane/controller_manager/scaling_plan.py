"""The next actions of a scale policy: a pure function of the policy's view.

More targets are made when the metric is above the threshold, no own target is empty and none is still on its way, a
step at a time with a cool-down in between; at the maximum number, targets get larger. A target without work for the
idle time goes, and a target that needs less than its capacity gets smaller, unless the metric is above the threshold:
then a removal that has not gone too far is taken back. Below the minimum no condition is awaited.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from controlplane.model.quantity import EPSILON, Number, show
from controlplane.model.scalepolicy import CLUSTER_API, REMOVE, Made, MadePhase, Metric, ScalePolicy

# A target whose joblet was awaited in vain for so long is given up.
GIVE_UP_SECONDS = 600.0


@dataclass(frozen=True, slots=True)
class MadeTargetView:
    """A made target. `known`: it is configured. `live`: its joblet is there. `busy`: the number of fulfilments.

    `idle_seconds`: time without work, `spare_seconds`: time in which a smaller size would have done, `missing_seconds`:
    time without the joblet.
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
class PolicyView:
    """`policy` is None when deleted; `acted_seconds` is the time since the policy last scaled."""

    policy: ScalePolicy | None
    places: Sequence[MadeTargetView]
    waiting: int = 0
    waited_seconds: float = 0.0
    acted_seconds: float = float("inf")


@dataclass(frozen=True, slots=True)
class Grow:
    """Another target, of this capacity."""

    capacity: Mapping[str, Number]
    why: str


@dataclass(frozen=True, slots=True)
class Shrink:
    """The target takes no new work, and goes once its work is gone."""

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


def plan(view: PolicyView) -> list[Action]:
    policy = view.policy
    staying = [place for place in view.places if place.stays]
    if policy is None:
        return [Shrink(place.made.target, "its policy was deleted") for place in staying]
    useless = [(place.made.target, why) for place in staying if (why := _useless(place))]
    if useless:
        return [Shrink(target, why) for target, why in useless]
    least, most = policy.min or 0, policy.max or 0
    if len(staying) > most:
        return list(_surplus(staying, len(staying) - most, f"there must not be more than {most}"))
    if len(staying) < least:
        return _more(policy, view, least - len(staying), f"there must be at least {least}")
    why = above(view, policy)
    if why and any(not place.stays and place.made.phase != MadePhase.REMOVING for place in view.places):
        room = most - len(staying)
        return _back(view, min(policy.step or 1, room), why)
    if view.acted_seconds < (policy.cool_down or 0):
        return []
    return _up(policy, view, staying, why) if why else _down(policy, staying)


def _useless(place: MadeTargetView) -> str:
    if place.made.phase == MadePhase.UP and not place.known:
        return "somebody deleted the target"
    if not place.live and place.missing_seconds >= GIVE_UP_SECONDS:
        return f"its joblet was awaited in vain for {GIVE_UP_SECONDS:g} s"
    return ""


def _up(policy: ScalePolicy, view: PolicyView, staying: Sequence[MadeTargetView], why: str) -> list[Action]:
    if any(place.made.phase != MadePhase.UP or (place.up and not place.busy) for place in staying):
        # Targets on their way may be enough; while a target stays empty, more targets would not help.
        return []
    room = (policy.max or 0) - len(staying)
    if room > 0:
        return _more(policy, view, min(policy.step or 1, room), why)
    larger = ((place, _larger(policy, place.made.capacity)) for place in _by_number(staying))
    resizes = [Resize(place.made.target, size, why) for place, size in larger if size is not None]
    return [*resizes[: policy.step or 1]]


def _down(policy: ScalePolicy, staying: Sequence[MadeTargetView]) -> list[Action]:
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
    resizes = [
        Resize(place.made.target, size, f"it needed no more for {idle:g} s")
        for place, size in smaller
        if size is not None and place.spare_seconds >= idle
    ]
    return [*resizes[: policy.step or 1]]


def _more(policy: ScalePolicy, view: PolicyView, count: int, why: str) -> list[Action]:
    """Takes back removals first, which is quicker than making a target."""
    back = _back(view, count, why)
    return [*back, *(Grow(policy.steps()[0], why) for _ in range(count - len(back)))]


def _back(view: PolicyView, count: int, why: str) -> list[Action]:
    leaving = [place for place in view.places if not place.stays and place.made.phase != MadePhase.REMOVING]
    return [Keep(place.made.target, why) for place in _by_number(leaving)[:count]]


def _surplus(staying: Sequence[MadeTargetView], count: int, why: str) -> Iterator[Action]:
    """The emptiest targets, the newest of equals."""
    newest_first = _by_number(staying)[::-1]
    ranked = sorted(newest_first, key=lambda place: place.busy)
    return (Shrink(place.made.target, why) for place in ranked[:count])


def above(view: PolicyView, policy: ScalePolicy) -> str:
    """Why the metric is above the threshold; empty when it is not."""
    threshold = float(policy.threshold or 0)
    if policy.metric == Metric.QUEUE:
        return f"{view.waiting} tasks wait, above {threshold:g}" if view.waiting > threshold else ""
    if policy.metric == Metric.WAIT:
        waits = view.waiting > 0 and view.waited_seconds > threshold
        return f"the longest wait is {view.waited_seconds:.1f} s, above {threshold:g}" if waits else ""
    up = [place for place in view.places if place.up]
    if not up:
        # No target is up, so that utilisation is undefined: grow if work waits.
        nothing = not any(place.stays for place in view.places)
        return "there is no target, and tasks wait" if nothing and view.waiting else ""
    used = utilisation(up)
    return f"{used:.0f} % are in use, above {threshold:g}" if used > threshold else ""


def utilisation(places: Sequence[MadeTargetView]) -> float:
    """The used part of the fullest quantity, in percent."""
    fullest = 0.0
    for name in {name for place in places for name in place.made.capacity}:
        capacity = sum(place.made.capacity.get(name, 0) for place in places)
        used = sum((place.used or {}).get(name, 0) for place in places)
        fullest = max(fullest, 100.0 * used / capacity if capacity else 0.0)
    return fullest


def _others_do(policy: ScalePolicy, staying: Sequence[MadeTargetView], leaving: MadeTargetView) -> bool:
    """Whether the remaining targets would be below the threshold, so that no removed target comes back at once."""
    if policy.metric != Metric.UTILISATION:
        return True
    rest = [place for place in staying if place.up and place is not leaving]
    return utilisation(rest) <= float(policy.threshold or 0)


def smaller_size(policy: ScalePolicy, place: MadeTargetView) -> Mapping[str, Number] | None:
    """The next smaller size, if the work on the target fits.

    A cluster of machines gets smaller only while empty: the machine that goes cannot be chosen.
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
    return all(amount <= large.get(name, 0) + EPSILON for name, amount in small.items())


def _by_number(places: Sequence[MadeTargetView]) -> list[MadeTargetView]:
    return sorted(places, key=lambda place: (len(place.made.target), place.made.target))


def next_seconds(view: PolicyView) -> float | None:
    """When time alone may change the plan; None when only a change can."""
    policy = view.policy
    if policy is None:
        return None
    moments = [float(policy.cool_down or 0) - view.acted_seconds]
    idle = float(policy.idle or 0)
    for place in view.places:
        if place.stays and not place.live:
            moments.append(GIVE_UP_SECONDS - place.missing_seconds)
        if place.up and not place.busy:
            moments.append(idle - place.idle_seconds)
        if place.up and smaller_size(policy, place) is not None:
            moments.append(idle - place.spare_seconds)
    if policy.metric == Metric.WAIT and view.waiting:
        moments.append(float(policy.threshold or 0) - view.waited_seconds + 0.001)
    return min((moment for moment in moments if moment > 0), default=None)


def shown(capacity: Mapping[str, Number]) -> str:
    return ", ".join(f"{name} {show(name, amount)}" for name, amount in sorted(capacity.items()))
