"""Apply: a file of objects, admitted whole or not at all, in one transaction.

References within the file hold whatever the order of its objects. Each object is compared with what was read, so that
the answer is true at the revision it names.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

from controlplane.apiserver.admission import named, settings, warnings
from controlplane.apiserver.admission import order as orders
from controlplane.apiserver.admission.catalogue import Catalogue, Overlay
from controlplane.apiserver.admission.warnings import Warning
from controlplane.apiserver.catching_up import admitted
from controlplane.apiserver.dependencies import ApiDependencies
from controlplane.apiserver.repeating import insist
from controlplane.apiserver.safekeeping import Safe
from controlplane.apiserver.space_guard import check_room
from controlplane.apiserver.storing import created, key_of, merged, same_revision
from controlplane.apiserver.submission import Submissions
from controlplane.model import identity, times
from controlplane.model.errors import AlreadyExists, Broken, Conflict, Invalid, LimitExceeded, Refused
from controlplane.model.object import Named
from controlplane.model.order import Order, OrderRequest
from controlplane.model.secret import Secret, SecretWish
from controlplane.model.settings import Settings
from controlplane.store import codec, keys, places, transaction
from controlplane.store.transaction import Compare, Item, Value

MAX_OBJECTS = 100
MAX_BYTES = 1 << 20
# Beside the one that nothing was cleaned up meanwhile; etcd takes 128 in a transaction.
MAX_COMPARES = 120
CREATED, UPDATED, UNCHANGED = "created", "updated", "unchanged"
_TRIES = 5

Wish = Named | OrderRequest | Settings


@dataclass(frozen=True, slots=True)
class Admitted:
    """One object that passed admission, and where it goes. An order is already the order that would be stored."""

    item: Named | Order | Settings
    key: str
    revision: int
    path: str
    warnings: list[Warning]


@dataclass(frozen=True, slots=True)
class Applied:
    item: Named | Order | Settings
    result: str


class Applying:
    def __init__(self, deps: ApiDependencies, submissions: Submissions) -> None:
        self._deps = deps
        self._submissions = submissions
        self._safe = Safe(deps.keyring)

    async def apply(self, wishes: Sequence[tuple[Wish, int]]) -> tuple[list[Applied], int, list[Warning]]:
        """Each wish comes with the revision that its writer read, 0 for any. Returns what was done, and when."""
        if not wishes:
            raise Invalid("objects", "must hold at least one object")
        if len(wishes) > MAX_OBJECTS:
            raise LimitExceeded(f"objects: must not be more than {MAX_OBJECTS}", field="objects")
        named = [(self._identified(wish), revision) for wish, revision in wishes]
        found = await admitted(self._deps, lambda known: self._admit(named, known))
        warned = [warning for one in found for warning in one.warnings]
        for _ in range(_TRIES):
            done, revision = await self._try(found)
            if revision:
                return done, revision, warned
        raise Conflict("the objects keep being changed by others; try again")

    def _identified(self, wish: Wish) -> Wish:
        return self._submissions.identified(wish) if isinstance(wish, OrderRequest) else wish

    def _admit(self, wishes: Sequence[tuple[Wish, int]], known: Catalogue) -> list[Admitted]:
        overlay = Overlay(known, _named(wishes), _settings(wishes, known))
        found: list[Admitted] = []
        seen: dict[str, str] = {}
        for position, (wish, revision) in enumerate(wishes):
            path = f"objects[{position}]"
            item, key, warned = self._admit_one(wish, overlay, path)
            if key in seen:
                raise Invalid(path, f"is the same object as {seen[key]}")
            seen[key] = path
            found.append(Admitted(item, key, revision, path, warned))
        return found

    def _admit_one(
        self, wish: Wish, known: Catalogue, path: str
    ) -> tuple[Named | Order | Settings, str, list[Warning]]:
        if isinstance(wish, Settings):
            return settings.admit(wish, path), keys.SETTINGS, []
        if isinstance(wish, Named):
            item = named.admit(wish, known, path)
            return item, key_of(item), warnings.of(wish, path)
        try:
            if wish.id:
                identity.check(wish.id)
            prepared = self._submissions.prepare(wish, orders.digest_of(wish), known)
        except Refused as refusal:
            raise _below(refusal, path) from None
        warned = [Warning(f"{path}.{found.field}", found.message) for found in prepared.warnings]
        return prepared.order, keys.order(prepared.order.id), warned

    async def _try(self, found: Sequence[Admitted]) -> tuple[list[Applied], int]:
        """One look and one transaction; revision 0 when what was looked at changed meanwhile."""
        there = await asyncio.gather(*(self._deps.store.get(one.key) for one in found))
        decided = [self._decide(one, stored) for one, stored in zip(found, there, strict=True)]
        compares = tuple(
            transaction.mod_is(one.key, stored.mod_revision if stored else 0)
            for one, stored in zip(found, there, strict=True)
        )
        puts = tuple(transaction.put(one.key, raw) for one, (_, raw) in zip(found, decided, strict=True) if raw)
        done = [applied for applied, _ in decided]
        if not puts:
            return done, max(stored.mod_revision for stored in there if stored is not None)
        new = [(one.item, one.path) for one, (_, raw) in zip(found, decided, strict=True) if raw]
        return done, await self._write(Item((*compares, *self._unused(new, len(compares))), puts), new)

    def _unused(self, new: Sequence[tuple[Named | Order | Settings, str]], others: int) -> tuple[Compare, ...]:
        """Compares that no new order's identity ran before, as far as one transaction takes them; all were checked."""
        guard = self._submissions.identities
        orders = [one.id for one, _ in new if isinstance(one, Order)]
        if not orders:
            return ()
        compares = [compare for name in orders for compare in guard.unused(name)]
        return (guard.unmoved(), *compares[: MAX_COMPARES - others])

    async def _write(self, item: Item, new: Sequence[tuple[Named | Order | Settings, str]]) -> int:
        """The revision it was written at, 0 when it was not. New orders take their owners' places first."""
        if any(not isinstance(one, Settings) for one, _ in new):
            check_room(self._deps)
        orders = [one for one, _ in new if isinstance(one, Order)]
        if orders:
            await self._submissions.turnstile.enter(orders[0].owner, len(orders))
        with self._submissions.quotas.entrance() as entrance:
            for one, path in new:
                if isinstance(one, Order):
                    try:
                        entrance.enter(one)
                    except LimitExceeded as refusal:
                        raise _below(refusal, path) from None
            # After a lost answer the compares tell; what is there by then, the next look finds unchanged.
            outcome, _ = await insist(self._deps, item, lambda: item if self._may_create(new) else None)
            if not outcome.succeeded:
                return 0
            for one, _ in new:
                if isinstance(one, Order):
                    entrance.stored(one.id, outcome.revision)
            return outcome.revision

    def _may_create(self, new: Sequence[tuple[Named | Order | Settings, str]]) -> bool:
        """Whether the identities of all new orders are still young enough."""
        try:
            for one, _ in new:
                if isinstance(one, Order):
                    self._submissions.identities.check(one.id)
        except Invalid:
            return False
        return True

    def _decide(self, one: Admitted, there: Value | None) -> tuple[Applied, bytes]:
        """What happens to the object, and the value to write, empty for none."""
        item = one.item
        if isinstance(item, Order):
            if there is not None:
                return Applied(_repeated(item, there, one.path), UNCHANGED), b""
            try:
                self._submissions.identities.check(item.id)
            except Invalid as refusal:
                raise _below(refusal, one.path) from None
            return Applied(item, CREATED), codec.encode(item)
        if isinstance(item, Settings):
            return _decide_settings(item, there)
        stamp = named.Stamp(self._deps.mint.make(), times.show(self._deps.clock.wall()))
        if there is None:
            new = created(item, stamp, self._safe)
            return Applied(new, CREATED), codec.encode(new)
        new, changes = merged(item, there, stamp, self._safe, one.path)
        if not changes:
            return Applied(new, UNCHANGED), b""
        same_revision(there, one.revision, new)
        return Applied(new, UPDATED), codec.rewrite(there.value, new)


def _decide_settings(item: Settings, there: Value | None) -> tuple[Applied, bytes]:
    if there is None:
        return Applied(item, CREATED), codec.encode(item)
    try:
        same = places.read(there, Settings) == item
    except Broken:
        same = False
    return (Applied(item, UNCHANGED), b"") if same else (Applied(item, UPDATED), codec.rewrite(there.value, item))


def _repeated(order: Order, there: Value, path: str) -> Order:
    stored = places.read(there, Order)
    if stored.digest != order.digest:
        field = f"{path}.id"
        raise AlreadyExists(f"{field}: order {order.id} exists with other content", field=field)
    return stored


def _named(wishes: Sequence[tuple[Wish, int]]) -> dict[tuple[type[Named], str], Named]:
    """Whoever names a secret of the file needs no more than that it will be there."""
    found: list[Named] = [wish for wish, _ in wishes if isinstance(wish, Named)]
    found = [Secret(name=wish.name, type=wish.type) if isinstance(wish, SecretWish) else wish for wish in found]
    return {(type(wish), wish.name): wish for wish in found}


def _settings(wishes: Sequence[tuple[Wish, int]], known: Catalogue) -> Settings:
    return next((wish for wish, _ in wishes if isinstance(wish, Settings)), None) or known.settings()


def _below(refusal: Refused, path: str) -> Refused:
    """The same refusal with the object's path in front of the field's."""
    field = f"{path}.{refusal.field}" if refusal.field else path
    if isinstance(refusal, Invalid):
        return Invalid(field, refusal.rule)
    moved = type(refusal)(f"{path}.{refusal}", field=field)
    if isinstance(moved, LimitExceeded) and isinstance(refusal, LimitExceeded):
        moved.retry_after_seconds = refusal.retry_after_seconds
    return moved
