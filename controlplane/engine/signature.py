"""Signature: all inputs of the choice of a target. Tasks with the same signature are interchangeable."""

from __future__ import annotations

from dataclasses import dataclass, field, fields

from controlplane.cache.ledger import OrderLedger
from controlplane.cache.placement_hint import ANYWHERE, PlacementHint
from controlplane.cache.target_ledger import PLAIN, NeighbourKind
from controlplane.engine.rules.facts import NO_FACTS, Facts
from controlplane.model import nodes
from controlplane.model.job import Constraint, Constraints, Job
from controlplane.model.quantity import Number

ANY = "any"
STRICT = "strict:"
_NO_CONSTRAINTS = Constraints()


@dataclass(frozen=True, slots=True, eq=False)
class Signature:
    """`spread` is the order whose tasks must be on different targets; `facts` are the fields of order and job read by
    rules. `imageless` work cannot go to a cluster. Up to `pack` tasks share a fulfilment; `packed` names the order and
    the job of such tasks, since only tasks of the same job of the same order may share a fulfilment.

    Signatures are looked up many times in a cycle, so the hash is computed once.
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
    kind: NeighbourKind = PLAIN
    preemptible: bool = False
    preempts: bool = False
    time_limit: Number | None = None
    facts: Facts = NO_FACTS
    hint: PlacementHint = ANYWHERE
    imageless: bool = False
    pack: int = 1
    packed: str = ""
    # The fields read by static filters and scores; most signatures differ in other fields only.
    static_key: tuple[object, ...] = field(init=False, repr=False, default=())
    # Whether the signature asks for a filter beside static filters and filters of room. The answers of `asked_by` of
    # these filters in a single flag.
    asks: bool = field(init=False, repr=False, default=False)
    # The requests with a positive amount.
    needs: tuple[tuple[str, Number], ...] = field(init=False, repr=False, default=())
    _key: tuple[object, ...] = field(init=False, repr=False, default=())
    _hash: int = field(init=False, repr=False, default=0)

    def __post_init__(self) -> None:
        key = tuple(getattr(self, name) for name in _FIELDS)
        object.__setattr__(self, "_key", key)
        where = (self.policy, self.drivers, self.imageless, self.region)
        object.__setattr__(self, "static_key", (*where, self.hard, self.soft, self.prefer, self.hint))
        object.__setattr__(self, "needs", tuple((name, amount) for name, amount in self.requests if amount > 0))
        neighbours = self.affinity or self.kind.anti_affinity or self.kind.exclusive
        object.__setattr__(self, "asks", bool(neighbours or self.spread or self.hint.avoid))
        object.__setattr__(self, "_hash", hash(key))

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        return self is other or (isinstance(other, Signature) and self._hash == other._hash and self._key == other._key)

    @property
    def single(self) -> bool:
        """Whether a target takes at most a single such task, however much room the target has."""
        return bool(self.spread) or self.kind.exclusive


_FIELDS = tuple(found.name for found in fields(Signature) if found.init)


def signature_of(ledger: OrderLedger, job: Job, facts: Facts = NO_FACTS, hint: PlacementHint = ANYWHERE) -> Signature:
    """The signature of tasks of this job of this order; the target policy of the order overrides the policy of the job.

    A task sent to a target by the user goes to the target, whatever the policies say.
    """
    unique = {resource.name for resource in ledger.resolved.resources if resource.unique}
    of_order = [resource.name for resource in ledger.order.resources if resource.unique]
    constraints = job.constraints or _NO_CONSTRAINTS
    packed = packed_as(ledger, job)
    return Signature(
        requests=tuple(sorted((job.requests or {}).items())),
        policy=f"{STRICT}{hint.to}" if hint.to else ledger.order.target_policy or job.target_policy or ANY,
        drivers=tuple(sorted(job.drivers)),
        unique=tuple(sorted({*(name for name in job.resources if name in unique), *of_order})),
        region=job.region,
        hard=nodes.of_targets(constraints.hard),
        soft=nodes.of_targets(constraints.soft),
        affinity=job.affinity,
        spread=ledger.order.id if job.spread == "order" else "",
        prefer=job.prefer,
        hurt_by=job.hurt_by,
        kind=NeighbourKind(tuple(sorted(job.labels.items())), job.class_, job.exclusive, job.anti_affinity),
        preemptible=job.preemptible,
        preempts=ledger.order.preempts,
        time_limit=job.time_limit,
        facts=facts,
        hint=hint,
        imageless=not job.image,
        pack=ledger.resolved.pack if packed else 1,
        packed=packed,
    )


def packed_as(ledger: OrderLedger, job: Job) -> str:
    """A text common to exactly the tasks which may share a fulfilment; empty where each task has a fulfilment of its
    own."""
    return f"{ledger.order.id}/{job.name}" if ledger.resolved.pack > 1 else ""
