"""ScalePolicy: how the number and the size of targets of one class of work follow the load; and what came of it.

A policy makes targets of its own and counts only those. `Made` is the intent for one of them, on record before anybody
is asked for it; `Scaling` is what a policy did. Numbers that a user did not give are filled in at admission.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from enum import StrEnum

from msgspec import field

from controlplane.model.bounds import (
    Amount,
    Amounts,
    Count,
    Few,
    Labels,
    Line,
    Many,
    Name,
    Revision,
    Seconds,
    Serial,
    SmallCount,
    TargetCount,
    Text,
    TimeOrEmpty,
)
from controlplane.model.object import Named, Object, Part
from controlplane.model.quantity import Number


class Metric(StrEnum):
    """What a threshold is compared with, over the work that a policy serves.

    queue: how many tasks wait. wait: for how many seconds the longest waiting order has waited. utilisation: how much
    of the fullest quantity of the policy's own targets is in use, in percent.
    """

    QUEUE = "queue"
    WAIT = "wait"
    UTILISATION = "utilisation"


CLUSTER_API = "cluster-api"
PROVIDERS = ("local", "webhook", CLUSTER_API)


_ROUNDING = 1e-9


class WorkSelector(Part, frozen=True, kw_only=True):
    """The work that counts: jobs of this class, with these labels, for this region. What is not said matches all."""

    class_: Line = field(default="", name="class")
    labels: Labels = {}
    region: Line = ""


class TargetTemplate(Part, frozen=True, kw_only=True):
    """What the targets are that a policy makes."""

    driver: Line = ""
    region: Line = ""
    labels: Labels = {}
    capacity: Amounts = {}


class TargetSize(Part, frozen=True, kw_only=True):
    capacity: Amounts = {}


class ClusterApi(Part, frozen=True, kw_only=True):
    """Where machines come from: the MachineDeployment of this namespace of the management cluster that new ones are
    copied from, and what one machine brings."""

    namespace: Line = ""
    template: Line = ""
    machine: Amounts = {}

    def machines(self, capacity: Mapping[str, Number]) -> int:
        """How many machines have that much, of every quantity."""
        needed = (amount / self.machine[name] for name, amount in capacity.items() if self.machine.get(name))
        return max(1, math.ceil(max(needed, default=1) - _ROUNDING))


class ScalePolicy(Named, tag="ScalePolicy", frozen=True, kw_only=True):
    """`sizes` are the steps in which one target grows, the smallest first; without them its size is the template's."""

    provider: Line = ""
    metric: Line = ""
    threshold: Amount | None = None
    min: TargetCount | None = None
    max: TargetCount | None = None
    step: TargetCount | None = None
    cool_down: Seconds | None = None
    idle: Seconds | None = None
    template: TargetTemplate | None = None
    serves: WorkSelector | None = None
    url: Text = ""
    sizes: Few[TargetSize] = ()
    cluster_api: ClusterApi | None = None

    def steps(self) -> tuple[Mapping[str, Number], ...]:
        """The capacities that a target may have, at least one."""
        if self.sizes:
            return tuple(size.capacity for size in self.sizes)
        return ((self.template or TargetTemplate()).capacity,)


class MadePhase(StrEnum):
    """Requested: the provider is asked for it. Up: its joblet came. Resizing: the provider is asked for another size.
    Removing: nothing was on it, nothing can be placed there any more, and the provider is asked to take it away."""

    REQUESTED = "Requested"
    UP = "Up"
    RESIZING = "Resizing"
    REMOVING = "Removing"


# The phase of an intent that is on record may be written again; after Removing there is nothing.
MADE_STEPS = frozenset(
    {
        (MadePhase.REQUESTED, MadePhase.UP),
        (MadePhase.REQUESTED, MadePhase.REMOVING),
        (MadePhase.UP, MadePhase.RESIZING),
        (MadePhase.RESIZING, MadePhase.UP),
        (MadePhase.RESIZING, MadePhase.REMOVING),
        (MadePhase.UP, MadePhase.REMOVING),
        *((phase, phase) for phase in MadePhase),
    }
)
REMOVE = "remove"


class Made(Object, tag="Made", frozen=True, kw_only=True):
    """`status/made/<target>`: a target that the system makes.

    `id` stays for its life: a later target of the same name is another one. `request` names what is asked of the
    provider now and is its idempotency key; each new intent has a new one and the next `generation`. With `want`
    "remove" the target takes no new work. All that the provider has to know is here, so that it can be asked after the
    policy changed or went.
    """

    id: Line
    target: Name
    policy: Name
    provider: Line
    epoch: Revision
    request: Line
    generation: Count = 1
    phase: Line = MadePhase.REQUESTED
    want: Line = "run"
    capacity: Amounts = {}
    template: TargetTemplate = TargetTemplate()
    url: Text = ""
    cluster_api: ClusterApi | None = None
    created: TimeOrEmpty = ""
    since: TimeOrEmpty = ""
    error: Text = ""


class ScalingStep(Part, frozen=True, kw_only=True):
    """One thing that scaling did: `grow`, `shrink`, `keep` or `resize`; to how many targets, and why."""

    at: TimeOrEmpty
    action: Line
    target: Line
    targets: SmallCount
    why: Text = ""


class Scaling(Object, tag="Scaling", frozen=True, kw_only=True):
    """`status/scaling/<policy>`: what the policy did last, since when it cools down, and the newest of its steps.

    `serial` is the highest number that a target's name was made with: while the policy is there, none is used again.
    """

    policy: Line
    epoch: Revision
    serial: Serial = 0
    acted: TimeOrEmpty = ""
    timeline: Many[ScalingStep] = ()
