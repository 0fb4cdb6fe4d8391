"""The reasons for waiting, one word each, and which of them is the nearer miss."""

from __future__ import annotations

NO_TARGETS = "NoTargets"
TARGET_POLICY = "TargetPolicy"
DRIVER = "DriverUnsupported"
REGION = "RegionMismatch"
CONSTRAINT = "ConstraintUnmet"
RULE_FORBIDS = "RuleForbids"
RULE_REQUIRES = "RuleRequires"
NOT_READY = "TargetNotReady"
WINDOW = "WindowClosed"
AVOIDED = "AvoidedTarget"
AFFINITY = "Affinity"
ANTI_AFFINITY = "AntiAffinity"
SPREAD = "Spread"
EXCLUSIVE = "Exclusive"
CAPACITY = "InsufficientCapacity"
FULL = "TargetFull"
RESERVED = "Reserved"
GANG = "GangIncomplete"
HELD = "ResourceHeld"
LIMIT = "RuleLimit"
QUOTA = "OwnerQuota"
QUEUED = "Queued"
PAUSED = "Paused"
NOT_BEFORE = "NotBefore"
BACKING_OFF = "BackingOff"
WAITS_FOR_JOBS = "WaitsForJobs"
ISOLATED = "Isolated"  # handling it fails; it is left out and tried again later
LOST = "Lost"  # its fulfilment vanished, and its end is about to be written

# The filters in the order in which they are asked. The nearer a task came to fitting, the later in this list its
# reason stands.
FILTERS = (
    TARGET_POLICY,
    DRIVER,
    REGION,
    CONSTRAINT,
    RULE_FORBIDS,
    RULE_REQUIRES,
    NOT_READY,
    WINDOW,
    AVOIDED,
    AFFINITY,
    ANTI_AFFINITY,
    EXCLUSIVE,
    SPREAD,
    CAPACITY,
    FULL,
    LIMIT,
    RESERVED,
)
NEARNESS = (NO_TARGETS, *FILTERS)
