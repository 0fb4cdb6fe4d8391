"""Signature: all that the choice of a target depends on. Tasks with the same signature are interchangeable."""

from __future__ import annotations

from dataclasses import dataclass, field, fields

from controlplane.cache.detour import STRAIGHT, Detour
from controlplane.cache.ledger import OrderLedger
from controlplane.cache.target_ledger import PLAIN, Kind
from controlplane.engine.rules.facts import NO_FACTS, Facts
from controlplane.model import nodes
from controlplane.model.job import Constraint, Constraints, Job
from controlplane.model.quantity import Number

ANY = "any"
STRICT = "strict:"
_NO_CONSTRAINTS = Constraints()


@dataclass(frozen=True, slots=True, eq=False)
class Signature:
    """`spread` is the order whose tasks must be on different targets; `facts` is what rules see of order and job.
    `imageless` work cannot go to a cluster. Up to `pack` tasks share a fulfilment; `packed` names the one job of the
    one order that they are then of, since only those may share one.

    Looked up many times in a cycle, so its hash is worked out once.
    """

    requests: tuple[tuple[str, Number], ...] = ()
    policy: str = ANY
    drivers: tuple[str, ...] = ()
    unique: tuple[str, ...] = ()
    region: str = ""
    hard: tuple[Constraint, ...] = ()
    soft: tuple[Constraint, ...] = ()
    affinity: tuple[Constraint, ...] = ()
    spread: str = ""
    prefer: tuple[tuple[str, ...], ...] = ()
    hurt_by: tuple[str, ...] = ()
    kind: Kind = PLAIN
    preemptible: bool = False
    preempts: bool = False
    time_limit: Number | None = None
    facts: Facts = NO_FACTS
    detour: Detour = STRAIGHT
    imageless: bool = False
    pack: int = 1
    packed: str = ""
    # All that the floor is asked about it; most signatures differ in something else.
    grounds: tuple[object, ...] = field(init=False, repr=False, default=())
    # What it really asks for: a request of nothing asks for nothing.
    needs: tuple[tuple[str, Number], ...] = field(init=False, repr=False, default=())
    _key: tuple[object, ...] = field(init=False, repr=False, default=())
    _hash: int = field(init=False, repr=False, default=0)

    def __post_init__(self) -> None:
        key = tuple(getattr(self, name) for name in _FIELDS)
        object.__setattr__(self, "_key", key)
        where = (self.policy, self.drivers, self.imageless, self.region)
        object.__setattr__(self, "grounds", (*where, self.hard, self.soft, self.prefer, self.detour))
        object.__setattr__(self, "needs", tuple((name, amount) for name, amount in self.requests if amount > 0))
        object.__setattr__(self, "_hash", hash(key))

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        return self is other or (isinstance(other, Signature) and self._hash == other._hash and self._key == other._key)

    @property
    def single(self) -> bool:
        """Whether a target takes at most one of such tasks, whatever its room."""
        return bool(self.spread) or self.kind.exclusive


_FIELDS = tuple(found.name for found in fields(Signature) if found.init)


def signature_of(ledger: OrderLedger, job: Job, facts: Facts = NO_FACTS, detour: Detour = STRAIGHT) -> Signature:
    """What decides where tasks of this job of this order may go; the order's policy overrides the job's.

    A task that its user sends to a target goes there, whatever else the policies say.
    """
    unique = {resource.name for resource in ledger.resolved.resources if resource.unique}
    of_order = [resource.name for resource in ledger.order.resources if resource.unique]
    constraints = job.constraints or _NO_CONSTRAINTS
    packed = packed_as(ledger, job)
    return Signature(
        requests=tuple(sorted((job.requests or {}).items())),
        policy=f"{STRICT}{detour.to}" if detour.to else ledger.order.target_policy or job.target_policy or ANY,
        drivers=tuple(sorted(job.drivers)),
        unique=tuple(sorted({*(name for name in job.resources if name in unique), *of_order})),
        region=job.region,
        hard=nodes.of_targets(constraints.hard),
        soft=nodes.of_targets(constraints.soft),
        affinity=job.affinity,
        spread=ledger.order.id if job.spread == "order" else "",
        prefer=job.prefer,
        hurt_by=job.hurt_by,
        kind=Kind(tuple(sorted(job.labels.items())), job.class_, job.exclusive, job.anti_affinity),
        preemptible=job.preemptible,
        preempts=ledger.order.preempts,
        time_limit=job.time_limit,
        facts=facts,
        detour=detour,
        imageless=not job.image,
        pack=ledger.resolved.pack if packed else 1,
        packed=packed,
    )


def packed_as(ledger: OrderLedger, job: Job) -> str:
    """What only tasks that may share a fulfilment have in common; empty where each has its own."""
    return f"{ledger.order.id}/{job.name}" if ledger.resolved.pack > 1 else ""
