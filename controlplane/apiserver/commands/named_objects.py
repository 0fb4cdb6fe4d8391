"""Writing named objects: create once, update on the revision read, delete when no other object needs the object.

Every write compares the keys it changes, so a write with a lost answer is decided by reading again.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from controlplane.apiserver import authorisation
from controlplane.apiserver.admission import field_warnings, fields, named_admission
from controlplane.apiserver.admission.admit_caught_up import admit_caught_up
from controlplane.apiserver.admission.catalogue import Catalogue
from controlplane.apiserver.admission.field_warnings import FieldWarning
from controlplane.apiserver.admission.named_admission import CreationStamp
from controlplane.apiserver.api_ports import Reads, Writes
from controlplane.apiserver.authorisation import Verb
from controlplane.apiserver.call import Call
from controlplane.apiserver.commands.guarded_writes import check_room, write_until_answered
from controlplane.apiserver.commands.secret_sealer import SecretSealer
from controlplane.cache.snapshot import Snapshot
from controlplane.model import kinds, times
from controlplane.model.access import ANYONE, Role, Subject
from controlplane.model.errors import AlreadyExists, Broken, Conflict, Forbidden, IllegalTransition, NotFound
from controlplane.model.job import Job
from controlplane.model.lifecycle import TargetPhase
from controlplane.model.object import Named
from controlplane.model.packet import Packet
from controlplane.model.resource import Resource
from controlplane.model.secret import Secret, SecretWish
from controlplane.model.target import Target
from controlplane.sealing import Keyring
from controlplane.store import codec, keys, transaction
from controlplane.store.transaction import Item, Value

N = TypeVar("N", bound=Named)

_TRIES = 5


@dataclass(frozen=True, slots=True)
class Stored:
    item: Named
    revision: int
    warnings: list[FieldWarning]


class NamedObjects:
    def __init__(self, reads: Reads, writes: Writes, keyring: Keyring) -> None:
        self._reads = reads
        self._writes = writes
        self._sealer = SecretSealer(keyring)

    def stamp(self, subject: Subject) -> CreationStamp:
        return CreationStamp(self._writes.mint.make(), times.show(self._writes.clock.wall()), subject)

    async def admit(self, subject: Subject, item: N, check: Callable[[N, Catalogue], N]) -> N:
        return await admit_caught_up(self._reads, subject, lambda existing: check(item, existing))

    async def create(self, call: Call, item: Named) -> Stored:
        admitted = await self.admit(call.subject, item, named_admission.admit)
        new = created(admitted, self.stamp(call.subject), self._sealer)
        authorise(call.subject, Verb.CREATE, new)
        check_room(self._writes)
        outcome, _ = await write_until_answered(self._writes, transaction.create_item(key_of(new), codec.encode(new)))
        if outcome.succeeded:
            return Stored(new, outcome.revision, field_warnings.of(new))
        there = outcome.found[0]
        if there is not None and there.value == codec.encode(new):
            # An earlier try acted after all: the identity is this object's alone.
            return Stored(new, there.mod_revision, field_warnings.of(new))
        raise AlreadyExists(f"name: {word_for(new)} {new.name!r} exists already", field="name")

    async def update(self, call: Call, item: Named, revision: int) -> Stored:
        """`revision`: the revision which the user read; 0 for any. The same content again is no write."""
        checked = await self.admit(call.subject, item, named_admission.admit)
        for _ in range(_TRIES):
            there = await self._reads.store.get(key_of(checked))
            if there is None or not seen(call.subject, type(checked), there):
                raise NotFound(f"name: there is no {word_for(checked)} {checked.name!r}", field="name")
            new, changes = merged(checked, there, self.stamp(call.subject), self._sealer)
            authorise(call.subject, Verb.UPDATE, new)
            if not changes:
                return Stored(new, there.mod_revision, field_warnings.of(new))
            same_revision(there, revision, checked)
            check_room(self._writes)
            outcome, _ = await write_until_answered(self._writes, rewriting(there, new))
            if outcome.succeeded:
                return Stored(new, outcome.revision, field_warnings.of(new))
        raise Conflict(f"{word_for(checked)} {checked.name!r} keeps being changed by others; try again")

    async def delete(self, call: Call, kind: type[Named], name: str, revision: int) -> int:
        fields.name(name, "name")
        key = keys.config(kinds.kind_of(kind).plural, name)
        if call.subject is not ANYONE:
            await self._may_delete(call.subject, kind, key, name)
        not_needed(kind, name, self._reads.cache.snapshot, call.subject)
        compare = transaction.mod_is(key, revision) if revision else transaction.present(key)
        write = Item((compare,), (transaction.delete(key),), (transaction.get(key),))
        outcome, again = await write_until_answered(self._writes, write)
        if outcome.succeeded or (again and outcome.found[0] is None):
            return outcome.revision
        if outcome.found[0] is None:
            raise NotFound(f"name: there is no {kind.__name__.lower()} {name!r}", field="name")
        raise Conflict(f"{kind.__name__.lower()} {name!r} was changed after revision {revision}; read it again")

    async def _may_delete(self, subject: Subject, kind: type[Named], key: str, name: str) -> None:
        """By the object in etcd: an object's owner does not change except by an administrator's word."""
        there = await self._reads.store.get(key)
        if there is None or not seen(subject, kind, there):
            raise NotFound(f"name: there is no {kind.__name__.lower()} {name!r}", field="name")
        authorisation.check(subject, Verb.DELETE, kinds.kind_of(kind).word, owner_of(kind, there))


def owner_of(kind: type[Named], there: Value) -> str:
    """The owner of a stored object, '' when the value cannot be read."""
    try:
        return codec.read(there, Secret if kind is SecretWish else kind).owner
    except Broken:
        return ""


def seen(subject: Subject, kind: type[Named], there: Value) -> bool:
    """Whether the stored object exists for the subject."""
    return authorisation.sees(subject, kinds.kind_of(kind).word, owner_of(kind, there))


def authorise(subject: Subject, verb: Verb, item: Named, path: str = "") -> None:
    """Decides on the object as it would be stored."""
    kind = kinds.kind_of(type(item)).word
    authorisation.check(subject, verb, kind, item.owner, field=path, target=item.name if kind == "Target" else "")
    if isinstance(item, Target) and not subject.has(Role.ADMIN, Role.OPERATOR):
        _is_of_joblet(subject, item, path)


def _is_of_joblet(subject: Subject, target: Target, path: str) -> None:
    """A joblet makes its target for itself: with a secret, a replica would run another joblet in that cluster."""
    if target.kubeconfig_secret:
        field = fields.at(path, "kubeconfig_secret")
        raise Forbidden(f"{field}: only an operator may give a secret to a target", field=field)
    if subject.driver and target.driver not in ("", subject.driver):
        field = fields.at(path, "driver")
        raise Forbidden(f"{field}: the credential is for a joblet of driver {subject.driver}", field=field)


def word_for(item: Named) -> str:
    return kinds.kind_of(type(item)).word.lower()


def key_of(item: Named) -> str:
    return keys.config(kinds.kind_of(type(item)).plural, item.name)


def created(item: Named, stamp: CreationStamp, sealer: SecretSealer) -> Named:
    """The object as stored where no object was."""
    return sealer.create(item, stamp) if isinstance(item, SecretWish) else named_admission.create(item, stamp)


def merged(item: Named, there: Value, stamp: CreationStamp, sealer: SecretSealer, path: str = "") -> tuple[Named, bool]:
    """The object as stored over the present value, and whether the value changes."""
    try:
        if isinstance(item, SecretWish):
            return sealer.update(item, codec.read(there, Secret), stamp, path)
        old = codec.read(there, type(item))
    except Broken:
        # An unreadable value can be replaced.
        return created(item, stamp, sealer), True
    new = named_admission.update(item, old, stamp, path)
    return new, new != old


def rewriting(there: Value, new: Named) -> Item:
    compare = transaction.mod_is(there.key, there.mod_revision)
    return Item((compare,), (transaction.put(there.key, codec.rewrite(there.value, new)),))


def same_revision(there: Value, revision: int, item: Named) -> None:
    if revision and revision != there.mod_revision:
        which = f"{word_for(item)} {item.name!r}"
        raise Conflict(f"{which} was changed at revision {there.mod_revision}, after {revision}; read it again")


def not_needed(kind: type[Named], name: str, snapshot: Snapshot, subject: Subject = ANYONE) -> None:
    """IllegalTransition while another object needs the object. Orders carry copies and need no object.

    An object that the subject may not see is not named.
    """

    def needed_by(other: Named) -> IllegalTransition:
        word = word_for(other)
        visible = authorisation.sees(subject, kinds.kind_of(type(other)).word, other.owner)
        needing = f"{word} {other.name!r}" if visible else f"a {word} of another owner"
        return IllegalTransition(f"name: {needing} needs {name!r}", field="name")

    if kind is Target:
        _not_working(name, snapshot)
    if kind is Secret:
        for target in snapshot.objects(keys.TARGETS):
            if target.kubeconfig_secret == name:
                raise needed_by(target)
    if kind in (Job, Resource):
        for packet in snapshot.objects(keys.PACKETS):
            if _packet_needs(packet, kind, name):
                raise needed_by(packet)
    if kind is Resource:
        for job in snapshot.objects(keys.JOBS):
            if name in job.resources:
                raise needed_by(job)


def _not_working(name: str, snapshot: Snapshot) -> None:
    """The work of a lost target is given to others; the leader evicts work placed at this moment."""
    count = snapshot.count(keys.DESIRED, name)
    status = snapshot.target_status(name)
    if count and (status is None or status.phase != TargetPhase.FAILED):
        rule = f"target {name!r} still has {count} fulfilments; drain it first: cpctl drain {name}"
        raise IllegalTransition(f"name: {rule}", field="name")


def _packet_needs(packet: Packet, kind: type[Named], name: str) -> bool:
    if kind is Job:
        return any(part.job == name for part in packet.jobs)
    inline = (part.job for part in packet.jobs if isinstance(part.job, Job))
    return name in packet.resources or any(name in job.resources for job in inline)
