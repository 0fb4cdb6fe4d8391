"""Does a task of this signature go on this target? One verdict per target, with the reason when it does not."""

from __future__ import annotations

from collections.abc import Mapping

from controlplane.engine.world import ANY, STRICT, Signature, TargetRow, World
from controlplane.model.quantity import Number

_EPSILON = 1e-9

NO_TARGETS = "NoTargets"
TARGET_POLICY = "TargetPolicy"
DRIVER = "DriverUnsupported"
NOT_READY = "TargetNotReady"
CAPACITY = "InsufficientCapacity"
FULL = "TargetFull"
HELD = "ResourceHeld"
QUEUED = "Queued"
PAUSED = "Paused"
BACKING_OFF = "BackingOff"
LOST = "Lost"  # its fulfilment vanished, and its end is about to be written

# The nearer a task came to fitting, the later in this list its reason stands.
NEARNESS = (NO_TARGETS, TARGET_POLICY, DRIVER, NOT_READY, CAPACITY, FULL, HELD)


def refusal(signature: Signature, row: TargetRow) -> str | None:
    """Why the target does not take even one such task, apart from unique resources; None when it does."""
    if signature.policy != ANY and row.name != signature.policy.removeprefix(STRICT):
        return TARGET_POLICY
    if signature.drivers and row.driver not in signature.drivers:
        return DRIVER
    if not row.ready:
        return NOT_READY
    if room(signature, row.free, None) == 0:
        return CAPACITY
    if row.slots == 0:
        return FULL
    return None


def room(signature: Signature, free: Mapping[str, Number], slots: int | None) -> int:
    """How many such tasks fit into what is free. A quantity that the target does not have does not fit."""
    most = slots if slots is not None else 1 << 30
    for name, amount in signature.requests:
        if amount > 0:
            most = min(most, int((free.get(name, 0) + _EPSILON) // amount))
    return max(most, 0)


def held(signature: Signature, world: World) -> str | None:
    """A unique resource that it needs and somebody holds."""
    return next((name for name in signature.unique if name in world.held), None)


def reason(signature: Signature, world: World) -> str:
    """The one reason to show for a group: of all targets' refusals the nearest miss; Queued when it would fit."""
    if held(signature, world) is not None:
        return HELD
    refusals = {refusal(signature, row) for row in world.targets}
    if None in refusals:
        return QUEUED
    return max((found for found in refusals if found), key=NEARNESS.index, default=NO_TARGETS)
