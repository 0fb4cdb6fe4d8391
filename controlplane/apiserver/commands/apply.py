"""Apply: a file of objects, admitted whole or not at all, in one transaction.

References within the file hold in any order of the objects. Each object is compared with the value read before, so the
answer is true at its revision.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from controlplane.apiserver import authorisation
from controlplane.apiserver.admission import field_warnings, named_admission, settings_admission
from controlplane.apiserver.admission.admit_caught_up import admit_caught_up
from controlplane.apiserver.admission.catalogue import Catalogue, Overlay
from controlplane.apiserver.admission.field_warnings import FieldWarning
from controlplane.apiserver.api_ports import Reads, Writes
from controlplane.apiserver.authorisation import Verb
from controlplane.apiserver.call import Call
from controlplane.apiserver.commands.guarded_writes import check_room, write_until_answered
from controlplane.apiserver.commands.named_objects import authorise, created, key_of, merged, same_revision, seen
from controlplane.apiserver.commands.secret_sealer import SecretSealer
from controlplane.apiserver.commands.submit import Submissions
from controlplane.model import identity, times
from controlplane.model.access import Subject
from controlplane.model.errors import AlreadyExists, Broken, Conflict, Invalid, LimitExceeded, Refused
from controlplane.model.object import Named
from controlplane.model.order import Order, OrderRequest
from controlplane.model.secret import Secret, SecretWish
from controlplane.model.settings import Settings
from controlplane.sealing import Keyring
from controlplane.store import codec, keys, transaction
from controlplane.store.transaction import Compare, Item, Value

MAX_OBJECTS = 100
MAX_BYTES = 1 << 20
# Beside the compare of the clean-up mark; etcd takes 128 compares in a transaction.
MAX_COMPARES = 120
CREATED, UPDATED, UNCHANGED = "created", "updated", "unchanged"
_TRIES = 5

Wish = Named | OrderRequest | Settings


@dataclass(frozen=True, slots=True)
class AdmittedObject:
    """An object which passed admission, with its key. An order is already the order to be stored."""

    item: Named | Order | Settings
    key: str
    revision: int
    path: str
    warnings: list[FieldWarning]


@dataclass(frozen=True, slots=True)
class Applied:
    item: Named | Order | Settings
    result: str


class AppliedFile(NamedTuple):
    """The result of each object, in the order of the file, and the revision at which the results are true."""

    objects: list[Applied]
    revision: int
    warnings: list[FieldWarning]


class Applier:
    def __init__(self, reads: Reads, writes: Writes, submissions: Submissions, keyring: Keyring) -> None:
        self._reads = reads
        self._writes = writes
        self._submissions = submissions
        self._sealer = SecretSealer(keyring)

    async def apply(self, call: Call, wishes: Sequence[tuple[Wish, int]]) -> AppliedFile:
        """Each wish comes with the revision which the user read, 0 for any."""
        if not wishes:
            raise Invalid("objects", "must hold at least one object")
        if len(wishes) > MAX_OBJECTS:
            raise LimitExceeded(f"objects: must not be more than {MAX_OBJECTS}", field="objects")
        named = [(self._identified(wish), revision) for wish, revision in wishes]
        admitted = await admit_caught_up(self._reads, call.subject, lambda existing: self._admit(call, named, existing))
        warned = [warning for part in admitted for warning in part.warnings]
        for _ in range(_TRIES):
            done, revision = await self._try(call, admitted)
            if revision:
                return AppliedFile(done, revision, warned)
        raise Conflict("the objects keep being changed by others; try again")

    def _identified(self, wish: Wish) -> Wish:
        return self._submissions.admission.identified(wish) if isinstance(wish, OrderRequest) else wish

    def _admit(self, call: Call, wishes: Sequence[tuple[Wish, int]], existing: Catalogue) -> list[AdmittedObject]:
        overlay = Overlay(existing, _named(wishes), _settings(wishes, existing))
        admitted: list[AdmittedObject] = []
        seen: dict[str, str] = {}
        for position, (wish, revision) in enumerate(wishes):
            path = f"objects[{position}]"
            item, key, warned = self._admit_one(call, wish, overlay, path)
            if key in seen:
                raise Invalid(path, f"is the same object as {seen[key]}")
            seen[key] = path
            admitted.append(AdmittedObject(item, key, revision, path, warned))
        return admitted

    def _admit_one(
        self, call: Call, wish: Wish, existing: Catalogue, path: str
    ) -> tuple[Named | Order | Settings, str, list[FieldWarning]]:
        if isinstance(wish, Settings):
            authorisation.check(call.subject, Verb.UPDATE, "Settings", field=path)
            return settings_admission.admit(wish, path), keys.SETTINGS, []
        if isinstance(wish, Named):
            item = named_admission.admit(wish, existing, path)
            return item, key_of(item), field_warnings.of(wish, path)
        try:
            if wish.id:
                identity.check(wish.id)
            prepared = self._submissions.admission.prepare(call.subject, wish, existing)
        except Refused as refusal:
            raise _below(refusal, path) from None
        warned = [FieldWarning(f"{path}.{warning.field}", warning.message) for warning in prepared.warnings]
        return prepared.order, keys.order(prepared.order.id), warned

    async def _try(self, call: Call, admitted: Sequence[AdmittedObject]) -> tuple[list[Applied], int]:
        """One read and one transaction; revision 0 when a value changed after the read."""
        there = await asyncio.gather(*(self._reads.store.get(part.key) for part in admitted))
        decided = [self._decide(call, part, stored) for part, stored in zip(admitted, there, strict=True)]
        compares = tuple(
            transaction.mod_is(part.key, stored.mod_revision if stored else 0)
            for part, stored in zip(admitted, there, strict=True)
        )
        puts = tuple(transaction.put(part.key, raw) for part, (_, raw) in zip(admitted, decided, strict=True) if raw)
        done = [applied for applied, _ in decided]
        if not puts:
            return done, max(stored.mod_revision for stored in there if stored is not None)
        new = [(part.item, part.path) for part, (_, raw) in zip(admitted, decided, strict=True) if raw]
        return done, await self._write(Item((*compares, *self._unused(new, len(compares))), puts), new)

    def _unused(self, new: Sequence[tuple[Named | Order | Settings, str]], others: int) -> tuple[Compare, ...]:
        """Compares that no new order's identity ran before, as many as one transaction takes; all were checked."""
        guard = self._submissions.identities
        orders = [item.id for item, _ in new if isinstance(item, Order)]
        if not orders:
            return ()
        compares = [compare for name in orders for compare in guard.unused(name)]
        return (guard.unmoved(), *compares[: MAX_COMPARES - others])

    async def _write(self, item: Item, new: Sequence[tuple[Named | Order | Settings, str]]) -> int:
        """The revision of the write, 0 for a refused write. New orders take their owners' places first."""
        if any(not isinstance(new_item, Settings) for new_item, _ in new):
            check_room(self._writes)
        orders = [new_item for new_item, _ in new if isinstance(new_item, Order)]
        if orders:
            await self._submissions.turnstile.enter(orders[0].owner, len(orders))
        with self._submissions.quotas.entrance() as entrance:
            for new_item, path in new:
                if isinstance(new_item, Order):
                    try:
                        entrance.enter(new_item)
                    except LimitExceeded as refusal:
                        raise _below(refusal, path) from None
            # After a lost answer the compares decide: objects written by the first try are found unchanged by the next.
            outcome, _ = await write_until_answered(self._writes, item, lambda: item if self._may_create(new) else None)
            if not outcome.succeeded:
                return 0
            for new_item, _ in new:
                if isinstance(new_item, Order):
                    entrance.stored(new_item.id, outcome.revision)
            return outcome.revision

    def _may_create(self, new: Sequence[tuple[Named | Order | Settings, str]]) -> bool:
        """Whether the identities of all new orders are still young enough."""
        try:
            for item, _ in new:
                if isinstance(item, Order):
                    self._submissions.identities.check(item.id)
        except Invalid:
            return False
        return True

    def _decide(self, call: Call, part: AdmittedObject, there: Value | None) -> tuple[Applied, bytes]:
        """The result for the object, and the value to write, empty for none."""
        item = part.item
        if isinstance(item, Order):
            if there is not None:
                return Applied(_repeated(call.subject, item, there, part.path), UNCHANGED), b""
            try:
                self._submissions.identities.check(item.id)
            except Invalid as refusal:
                raise _below(refusal, part.path) from None
            return Applied(item, CREATED), codec.encode(item)
        if isinstance(item, Settings):
            return _decide_settings(item, there)
        now, subject = times.show(self._writes.clock.wall()), call.subject
        stamp = named_admission.CreationStamp(self._writes.mint.make(), now, subject)
        if there is not None and not seen(subject, type(item), there):
            raise AlreadyExists(f"{part.path}.name: {item.name!r} exists already", field=f"{part.path}.name")
        if there is None:
            new = created(item, stamp, self._sealer)
            authorise(subject, Verb.CREATE, new, part.path)
            return Applied(new, CREATED), codec.encode(new)
        new, changes = merged(item, there, stamp, self._sealer, part.path)
        authorise(subject, Verb.UPDATE, new, part.path)
        if not changes:
            return Applied(new, UNCHANGED), b""
        same_revision(there, part.revision, new)
        return Applied(new, UPDATED), codec.rewrite(there.value, new)


def _decide_settings(item: Settings, there: Value | None) -> tuple[Applied, bytes]:
    if there is None:
        return Applied(item, CREATED), codec.encode(item)
    try:
        same = codec.read(there, Settings) == item
    except Broken:
        same = False
    return (Applied(item, UNCHANGED), b"") if same else (Applied(item, UPDATED), codec.rewrite(there.value, item))


def _repeated(subject: Subject, order: Order, there: Value, path: str) -> Order:
    """The order of an earlier apply. Of an order that the subject may not see, only the identity is told."""
    field = f"{path}.id"
    taken = AlreadyExists(f"{field}: order {order.id} exists with other content", field=field)
    try:
        stored = codec.read(there, Order)
    except Broken:
        if authorisation.visible_owners(subject) is not None:
            raise taken from None
        raise
    if stored.digest != order.digest or not authorisation.sees(subject, "Order", stored.owner):
        raise taken
    return stored


def _named(wishes: Sequence[tuple[Wish, int]]) -> dict[tuple[type[Named], str], Named]:
    """A reference to a secret of the file needs the secret's name only."""
    named: list[Named] = [wish for wish, _ in wishes if isinstance(wish, Named)]
    named = [Secret(name=wish.name, type=wish.type) if isinstance(wish, SecretWish) else wish for wish in named]
    return {(type(wish), wish.name): wish for wish in named}


def _settings(wishes: Sequence[tuple[Wish, int]], existing: Catalogue) -> Settings:
    return next((wish for wish, _ in wishes if isinstance(wish, Settings)), None) or existing.settings()


def _below(refusal: Refused, path: str) -> Refused:
    """The same refusal with the object's path in front of the field's."""
    field = f"{path}.{refusal.field}" if refusal.field else path
    if isinstance(refusal, Invalid):
        return Invalid(field, refusal.rule)
    moved = type(refusal)(f"{path}.{refusal}", field=field)
    if isinstance(moved, LimitExceeded) and isinstance(refusal, LimitExceeded):
        moved.retry_after_seconds = refusal.retry_after_seconds
    return moved
