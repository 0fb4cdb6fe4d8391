"""From actions of a policy to writes: intents for targets and the policy's own record, in a single item.

Every changed record is compared, and the name of a new target must be free, so that of two leaders with the same
decision only one succeeds.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from msgspec.structs import replace

from controlplane.controller_manager.scaling_plan import Action, Grow, Keep, Resize, Shrink, shown
from controlplane.model.scalepolicy import (
    CLUSTER_API,
    REMOVE,
    Made,
    MadePhase,
    ScalePolicy,
    Scaling,
    ScalingStep,
    TargetTemplate,
)
from controlplane.store import codec, keys
from controlplane.store.transaction import Compare, Item, Operation, absent, mod_is, nothing_below, put

MOST_AT_ONCE = 40
KEPT_STEPS = 50


@dataclass(frozen=True, slots=True)
class ScalingRecords:
    """The records of a policy and its targets, each with its revision."""

    policy: ScalePolicy | None
    scaling: Scaling | None
    scaling_revision: int
    made: Mapping[str, tuple[Made, int]]


def item_of(
    key: str,
    records: ScalingRecords,
    actions: Sequence[Action],
    *,
    epoch: int,
    now: str,
    make_identity: Callable[[], str],
    taken: Callable[[str], bool],
) -> Item:
    """`taken` says whether a target of this name exists, whoever made it."""
    before = records.scaling or Scaling(policy=key, epoch=epoch)
    names = _Names(key, before.serial, records.made, taken)
    count = sum(made.want != REMOVE for made, _ in records.made.values())
    compares: list[Compare] = []
    operations: list[Operation] = []
    steps: list[ScalingStep] = []
    for action in actions:
        count += {Grow: 1, Keep: 1, Shrink: -1, Resize: 0}[type(action)]
        if isinstance(action, Grow):
            assert records.policy is not None
            made = new(records.policy, names.next(), action, epoch=epoch, now=now, request=make_identity())
            compares += [absent(keys.made(made.target)), absent(keys.config("targets", made.target))]
        else:
            old, revision = records.made[action.target]
            made = changed(old, action, epoch=epoch, now=now, make_identity=make_identity)
            compares.append(mod_is(keys.made(made.target), revision))
            if isinstance(action, Resize) and loses_machines(old, made):
                compares.append(nothing_below(keys.desired_on(made.target)))
        operations.append(put(keys.made(made.target), codec.encode(made)))
        steps.append(_step(action, made.target, count, now))
    scaling = replace(
        before, epoch=epoch, serial=names.serial, acted=now, timeline=(*before.timeline, *steps)[-KEPT_STEPS:]
    )
    place = keys.scaling(key)
    return Item(
        compares=(*compares, mod_is(place, records.scaling_revision)),
        then=(*operations, put(place, codec.encode(scaling))),
    )


def new(policy: ScalePolicy, target: str, action: Grow, *, epoch: int, now: str, request: str) -> Made:
    return Made(
        id=request,
        target=target,
        policy=policy.name,
        provider=policy.provider,
        epoch=epoch,
        request=request,
        capacity=dict(action.capacity),
        template=policy.template or TargetTemplate(),
        url=policy.url,
        cluster_api=policy.cluster_api,
        created=now,
        since=now,
    )


def changed(
    made: Made, action: Shrink | Keep | Resize, *, epoch: int, now: str, make_identity: Callable[[], str]
) -> Made:
    if isinstance(action, Shrink):
        return replace(made, epoch=epoch, want=REMOVE)
    if isinstance(action, Keep):
        return replace(made, epoch=epoch, want="run")
    return replace(
        made,
        epoch=epoch,
        phase=MadePhase.RESIZING,
        capacity=dict(action.capacity),
        request=make_identity(),
        generation=made.generation + 1,
        since=now,
    )


def loses_machines(old: Made, made: Made) -> bool:
    """Whether machines go, with all work on them."""
    less = any(amount < old.capacity.get(name, 0) for name, amount in made.capacity.items())
    return made.provider == CLUSTER_API and less


def _step(action: Action, target: str, count: int, now: str) -> ScalingStep:
    to = f"to {shown(action.capacity)}: " if isinstance(action, Resize) else ""
    name = type(action).__name__.lower()
    return ScalingStep(at=now, action=name, target=target, targets=count, why=f"{to}{action.why}")


class _Names:
    """Names for new targets: the policy's name and a number that no target of the policy ever had."""

    def __init__(self, policy: str, serial: int, made: Mapping[str, object], taken: Callable[[str], bool]) -> None:
        self._front = f"{policy}-"
        self._taken = taken
        numbers = (name.removeprefix(self._front) for name in made)
        self.serial = max([serial, *(int(number) for number in numbers if number.isdigit())])

    def next(self) -> str:
        self.serial += 1
        while self._taken(f"{self._front}{self.serial}"):
            self.serial += 1
        return f"{self._front}{self.serial}"
