"""Writing named objects: created once, updated on the revision that was read, deleted when nothing needs them.

Every write compares what it changes, so one whose answer was lost is decided by looking again.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from controlplane.apiserver.admission import fields, named, warnings
from controlplane.apiserver.admission.catalogue import Catalogue
from controlplane.apiserver.admission.named import FOLDERS, Stamp
from controlplane.apiserver.admission.warnings import Warning
from controlplane.apiserver.catching_up import admitted
from controlplane.apiserver.dependencies import ApiDependencies
from controlplane.apiserver.repeating import insist
from controlplane.apiserver.safekeeping import Safe
from controlplane.apiserver.space_guard import check_room
from controlplane.cache.snapshot import Snapshot
from controlplane.model import times
from controlplane.model.errors import AlreadyExists, Broken, Conflict, IllegalTransition, NotFound
from controlplane.model.job import Job
from controlplane.model.lifecycle import TargetPhase
from controlplane.model.object import Named
from controlplane.model.packet import Packet
from controlplane.model.resource import Resource
from controlplane.model.secret import Secret, SecretWish
from controlplane.model.target import Target, TargetStatus
from controlplane.store import codec, keys, places, transaction
from controlplane.store.transaction import Item, Value

N = TypeVar("N", bound=Named)

_TRIES = 5


@dataclass(frozen=True, slots=True)
class Stored:
    item: Any
    revision: int
    warnings: list[Warning]


class Objects:
    def __init__(self, deps: ApiDependencies) -> None:
        self._deps = deps
        self._safe = Safe(deps.keyring)

    def stamp(self) -> Stamp:
        return Stamp(self._deps.mint.make(), times.show(self._deps.clock.wall()))

    async def admit(self, item: N, check: Callable[[N, Catalogue], N]) -> N:
        return await admitted(self._deps, lambda known: check(item, known))

    async def create(self, item: Named) -> Stored:
        new = created(await self.admit(item, named.admit), self.stamp(), self._safe)
        check_room(self._deps)
        outcome, _ = await insist(self._deps, transaction.creating(key_of(new), codec.encode(new)))
        if outcome.succeeded:
            return Stored(new, outcome.revision, warnings.of(new))
        there = outcome.found[0]
        if there is not None and there.value == codec.encode(new):
            # An earlier try happened after all: nobody else has this identity.
            return Stored(new, there.mod_revision, warnings.of(new))
        raise AlreadyExists(f"name: {kind_of(new)} {new.name!r} exists already", field="name")

    async def update(self, item: Named, revision: int) -> Stored:
        """`revision`: the one that the user read; 0 for whatever is there. The same content again is no write."""
        checked = await self.admit(item, named.admit)
        for _ in range(_TRIES):
            there = await self._deps.store.get(key_of(checked))
            if there is None:
                raise NotFound(f"name: there is no {kind_of(checked)} {checked.name!r}", field="name")
            new, changes = merged(checked, there, self.stamp(), self._safe)
            if not changes:
                return Stored(new, there.mod_revision, warnings.of(new))
            same_revision(there, revision, checked)
            check_room(self._deps)
            outcome, _ = await insist(self._deps, rewriting(there, new))
            if outcome.succeeded:
                return Stored(new, outcome.revision, warnings.of(new))
        raise Conflict(f"{kind_of(checked)} {checked.name!r} keeps being changed by others; try again")

    async def delete(self, kind: type[Named], name: str, revision: int) -> int:
        fields.name(name, "name")
        not_needed(kind, name, self._deps.cache.snapshot)
        key = keys.config(FOLDERS[kind], name)
        compare = transaction.mod_is(key, revision) if revision else transaction.present(key)
        write = Item((compare,), (transaction.delete(key),), (transaction.get(key),))
        outcome, again = await insist(self._deps, write)
        if outcome.succeeded or (again and outcome.found[0] is None):
            return outcome.revision
        if outcome.found[0] is None:
            raise NotFound(f"name: there is no {kind.__name__.lower()} {name!r}", field="name")
        raise Conflict(f"{kind.__name__.lower()} {name!r} was changed after revision {revision}; read it again")


def kind_of(item: Named) -> str:
    return str(type(item).__struct_config__.tag).lower()


def key_of(item: Named) -> str:
    return keys.config(FOLDERS[type(item)], item.name)


def created(item: Named, stamp: Stamp, safe: Safe) -> Named:
    """The object as it would be stored where nothing is."""
    return safe.create(item, stamp) if isinstance(item, SecretWish) else named.create(item, stamp)


def merged(item: Named, there: Value, stamp: Stamp, safe: Safe, path: str = "") -> tuple[Named, bool]:
    """The object as it would be stored over what is there, and whether that changes anything."""
    try:
        if isinstance(item, SecretWish):
            return safe.update(item, places.read(there, Secret), path)
        old = places.read(there, type(item))
    except Broken:
        # What cannot be read can be replaced.
        return created(item, stamp, safe), True
    new = named.update(item, old, path)
    return new, new != old


def rewriting(there: Value, new: Named) -> Item:
    compare = transaction.mod_is(there.key, there.mod_revision)
    return Item((compare,), (transaction.put(there.key, codec.rewrite(there.value, new)),))


def same_revision(there: Value, revision: int, item: Named) -> None:
    if revision and revision != there.mod_revision:
        which = f"{kind_of(item)} {item.name!r}"
        raise Conflict(f"{which} was changed at revision {there.mod_revision}, after {revision}; read it again")


def not_needed(kind: type[Named], name: str, snapshot: Snapshot) -> None:
    """IllegalTransition while something that exists would be left without it. Orders carry copies and need nothing."""
    if kind is Target:
        _not_working(name, snapshot)
    if kind is Secret:
        for entry in snapshot.all("config/targets"):
            target = entry.sound(Target)
            if target is not None and target.kubeconfig_secret == name:
                raise IllegalTransition(f"name: target {target.name!r} needs {name!r}", field="name")
    if kind in (Job, Resource):
        for entry in snapshot.all("config/packets"):
            packet = entry.sound(Packet)
            if packet is not None and _packet_needs(packet, kind, name):
                raise IllegalTransition(f"name: packet {packet.name!r} needs {name!r}", field="name")
    if kind is Resource:
        for entry in snapshot.all("config/jobs"):
            job = entry.sound(Job)
            if job is not None and name in job.resources:
                raise IllegalTransition(f"name: job {job.name!r} needs {name!r}", field="name")


def _not_working(name: str, snapshot: Snapshot) -> None:
    """What a lost target had is given to others anyhow; what is placed at this moment the leader evicts."""
    count = snapshot.count("desired", name)
    entry = snapshot.get("status/targets", name)
    status = entry.sound(TargetStatus) if entry is not None else None
    if count and (status is None or status.phase != TargetPhase.FAILED):
        rule = f"target {name!r} still has {count} fulfilments; drain it first: cpctl drain {name}"
        raise IllegalTransition(f"name: {rule}", field="name")


def _packet_needs(packet: Packet, kind: type[Named], name: str) -> bool:
    if kind is Job:
        return any(part.job == name for part in packet.jobs)
    inline = (part.job for part in packet.jobs if isinstance(part.job, Job))
    return name in packet.resources or any(name in job.resources for job in inline)
