"""ScalePolicy: how the number and the size of targets of a class of work follow the load; and the records of scaling.

A policy makes targets of its own and counts only those. `Made` is the intent for a target, on record before any
provider is asked; `Scaling` is the record of a policy's actions. Admission fills in numbers that a user left out.
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
    """The value that a threshold is compared with, over the work that a policy serves.

    queue: the number of waiting tasks. wait: the seconds for which the longest-waiting order has waited. utilisation:
    the used part of the fullest quantity of the policy's own targets, in percent.
    """

    QUEUE = "queue"
    WAIT = "wait"
    UTILISATION = "utilisation"


CLUSTER_API = "cluster-api"
PROVIDERS = ("local", "webhook", CLUSTER_API)


_ROUNDING = 1e-9


class WorkSelector(Part, frozen=True, kw_only=True):
    """The work that counts: jobs of this class, with these labels, for this region. Empty fields match all."""

    class_: Line = field(default="", name="class")
    labels: Labels = {}
    region: Line = ""


class TargetTemplate(Part, frozen=True, kw_only=True):
    """The targets that a policy makes."""

    driver: Line = ""
    region: Line = ""
    labels: Labels = {}
    capacity: Amounts = {}


class TargetSize(Part, frozen=True, kw_only=True):
    capacity: Amounts = {}


class ClusterApi(Part, frozen=True, kw_only=True):
    """The source of machines: the MachineDeployment in this namespace of the management cluster that is copied, and the
    capacity of a machine.
    """

    namespace: Line = ""
    template: Line = ""
    machine: Amounts = {}

    def machines(self, capacity: Mapping[str, Number]) -> int:
        """The number of machines with this capacity, of every quantity."""
        needed = (amount / self.machine[name] for name, amount in capacity.items() if self.machine.get(name))
        return max(1, math.ceil(max(needed, default=1) - _ROUNDING))


class ScalePolicy(Named, tag="ScalePolicy", frozen=True, kw_only=True):
    """`sizes` are the steps in which a target grows, the smallest first; without sizes, the template's capacity."""

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
    """Requested: the provider is asked for the target. Up: the joblet came. Resizing: the provider is asked for another
    size. Removing: the target was empty, no work can be placed there any more, and the provider is asked to remove it.
    """

    REQUESTED = "Requested"
    UP = "Up"
    RESIZING = "Resizing"
    REMOVING = "Removing"


# The phase of an intent may be written again; Removing is the last phase.
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

    `id` stays for life: a later target of the same name has another id. `request` names the current request to the
    provider and is the idempotency key; each new intent has a new request and the next `generation`. With `want`
    "remove" the target takes no new work. The record holds all that the provider has to know, so that the provider can
    be asked after the policy changed or went.
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
    """An action of scaling: `grow`, `shrink`, `keep` or `resize`; the resulting number of targets, and why."""

    at: TimeOrEmpty
    action: Line
    target: Line
    targets: SmallCount
    why: Text = ""


class Scaling(Object, tag="Scaling", frozen=True, kw_only=True):
    """`status/scaling/<policy>`: the last action of the policy, the start of the cool-down, and the newest steps.

    `serial` is the highest number in a target's name: while the policy exists, no number is used again.
    """

    policy: Line
    epoch: Revision
    serial: Serial = 0
    acted: TimeOrEmpty = ""
    timeline: Many[ScalingStep] = ()
