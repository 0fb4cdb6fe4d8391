"""The world as a cycle sees it: targets with their room, and which unique resources are held."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from controlplane.cache.ledger import OrderLedger
from controlplane.cache.ledgers import Ledgers
from controlplane.cache.snapshot import Snapshot
from controlplane.model.fulfilment import Claim
from controlplane.model.job import Job
from controlplane.model.quantity import Number, sane, whole
from controlplane.model.target import Live, Target, TargetStatus
from controlplane.store import keys

ANY = "any"
STRICT = "strict:"


@dataclass(frozen=True, slots=True)
class TargetRow:
    """One target. `ready` means that it takes new work; `slots` is how many more fulfilments it takes."""

    name: str
    ready: bool
    phase: str
    driver: str
    capacity: Mapping[str, Number]
    free: Mapping[str, Number]
    slots: int | None


@dataclass(frozen=True, slots=True)
class World:
    revision: int
    targets: tuple[TargetRow, ...]
    held: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Signature:
    """All that the choice of a target depends on: tasks with the same signature are interchangeable."""

    requests: tuple[tuple[str, Number], ...]
    policy: str
    drivers: tuple[str, ...]
    unique: tuple[str, ...]


def look(ledgers: Ledgers) -> World:
    snapshot = ledgers.cache.snapshot
    rows = [row_of(name, snapshot, ledgers) for name in sorted(snapshot.names("config/targets"))]
    held: dict[str, str] = {}
    for entry in snapshot.all("claims"):
        claim = entry.sound(Claim)
        held[entry.parts[0]] = claim.fulfilment if claim is not None else ""
    return World(snapshot.revision, tuple(row for row in rows if row is not None), held)


def row_of(name: str, snapshot: Snapshot, ledgers: Ledgers) -> TargetRow | None:
    entry = snapshot.get("config/targets", name)
    target = entry.sound(Target) if entry is not None else None
    if target is None:
        return None
    status_entry = snapshot.get("status/targets", name)
    status = status_entry.sound(TargetStatus) if status_entry is not None else None
    live_entry = snapshot.get("inventory", name, keys.LIVE)
    live = live_entry.sound(Live) if live_entry is not None else None
    capacity = capacity_of(target, live)
    if not sane(capacity):
        return None
    ledger = ledgers.target(name)
    slots = None if target.max_fulfilments is None else max(0, target.max_fulfilments - len(ledger.fulfilments))
    phase = status.phase if status is not None else "Provisioning"
    ready = phase == "Ready" and live is not None and not target.cordoned and not target.drain
    free = {quantity: whole(round(amount - ledger.used.get(quantity, 0), 9)) for quantity, amount in capacity.items()}
    driver = live.driver if live is not None else target.driver
    return TargetRow(name, ready, phase, driver, capacity, free, slots)


def capacity_of(target: Target, live: Live | None) -> dict[str, Number]:
    """Of each quantity the smaller of what is configured and what the joblet reports."""
    configured = dict(target.capacity or {})
    reported = dict(live.capacity) if live is not None else {}
    for name, amount in reported.items():
        configured[name] = min(amount, configured.get(name, amount))
    return configured


def signature_of(ledger: OrderLedger, job: Job) -> Signature:
    """What decides where tasks of this job of this order may go; the order's policy overrides the job's."""
    unique = {resource.name for resource in ledger.resolved.resources if resource.unique}
    return Signature(
        requests=tuple(sorted((job.requests or {}).items())),
        policy=ledger.order.target_policy or job.target_policy or ANY,
        drivers=tuple(sorted(job.drivers)),
        unique=tuple(sorted(name for name in job.resources if name in unique)),
    )
