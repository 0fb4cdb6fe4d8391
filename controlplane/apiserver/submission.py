"""Submitting orders: idempotent by identity, cheap when many orders run the same packet.

A submit compares nothing but that its order is not there yet. When it is, the digest of the request as sent tells a
repeat from another order. What a packet resolved to, and what a request came to that differs from others in its
identity only, are kept until something they may refer to changes. An identity runs once (`identity_guard`).
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence
from functools import partial
from typing import NamedTuple, TypeVar

from msgspec.structs import replace

from controlplane.apiserver.admission import catalogue as names
from controlplane.apiserver.admission import order as orders
from controlplane.apiserver.admission import warnings
from controlplane.apiserver.admission.catalogue import Catalogue
from controlplane.apiserver.admission.resolve import Resolution, resolve
from controlplane.apiserver.admission.warnings import Warning
from controlplane.apiserver.catching_up import admitted
from controlplane.apiserver.dependencies import ApiDependencies
from controlplane.apiserver.identity_guard import IdentityGuard
from controlplane.apiserver.quotas import Entrance, Quotas
from controlplane.apiserver.reading import SnapshotCatalogue, gives_time_limits
from controlplane.apiserver.repeating import insist
from controlplane.apiserver.space_guard import check_room
from controlplane.apiserver.turnstile import Turnstile
from controlplane.cache.reflector import Delta
from controlplane.model import identity, schedule, times
from controlplane.model.errors import (
    AlreadyExists,
    Broken,
    ControlPlaneError,
    Invalid,
    LimitExceeded,
    OutcomeUnknown,
    Refused,
    Unavailable,
)
from controlplane.model.order import Order, OrderRequest, content_digest
from controlplane.store import codec, keys, places, transaction
from controlplane.store.transaction import Item, Outcome, Value

# What a resolution depends on.
_REFERRED = frozenset({"config", "config/jobs", "config/packets", "config/resources", "config/targets"})
_MOST_KEPT = 200
_TURN = 100
_AT_ONCE = 50
_TRIES = 5

K = TypeVar("K")


class Admitted(NamedTuple):
    """What a request comes to, whatever its identity and the time."""

    order: Order
    warnings: list[Warning]


class Prepared(NamedTuple):
    order: Order
    item: Item
    warnings: list[Warning]


class Submitted(NamedTuple):
    order: Order
    revision: int
    repeated: bool
    warnings: list[Warning]


class Submissions:
    def __init__(self, deps: ApiDependencies) -> None:
        self._deps = deps
        self._resolutions: dict[str, Resolution] = {}
        self._admitted: dict[str, Admitted] = {}
        self.quotas = Quotas(deps.ledgers)
        self.identities = IdentityGuard(deps)
        self._keeping = threading.Lock()
        self._referred_revision = 0
        self.turnstile = Turnstile(deps.ledgers, deps.clock)
        deps.cache.subscribe(self._hear)

    def _hear(self, deltas: Sequence[Delta], revision: int) -> None:
        if any(delta.tree in _REFERRED for delta in deltas):
            with self._keeping:
                self._referred_revision = revision
                self._resolutions.clear()
                self._admitted.clear()

    def _keep(self, kept: dict[str, K], key: str, value: K, known: SnapshotCatalogue) -> None:
        """Unless something that it may refer to changed since: large requests are admitted in threads."""
        with self._keeping:
            if known.revision < self._referred_revision:
                return
            if len(kept) >= _MOST_KEPT:
                kept.pop(next(iter(kept)))
            kept[key] = value

    async def submit(self, request: OrderRequest) -> Submitted:
        """The order, new or repeated. OutcomeUnknown only when etcd never said what became of it."""
        content = orders.digest_of(request)
        with self.quotas.entrance() as entrance:
            try:
                if request.id:
                    self.identities.check(request.id)
                check_room(self._deps)
                prepared = self._guarded(request, await self._prepared(request, content))
                entrance.enter(prepared.order)
            except Refused as refusal:
                known = await self._known(request.id, content)
                if known is None:
                    raise refusal from None
                return known
            done = _landed(prepared, await self._created(prepared), entrance)
        if isinstance(done, ControlPlaneError):
            raise done
        return done

    async def submit_all(self, requests: Sequence[OrderRequest]) -> list[Submitted | ControlPlaneError]:
        """Each order's own result. What is plain travels together; what is not is submitted on its own."""
        with self.quotas.entrance() as entrance:
            plain = await self._plain(requests, entrance)
            outcomes = await self._created_all(list(plain.values()))
            results = {
                position: _landed(plain[position], outcome, entrance)
                for position, outcome in zip(plain, outcomes, strict=True)
            }
        doubtful = [position for position in range(len(requests)) if position not in plain]
        for start in range(0, len(doubtful), _AT_ONCE):
            some = doubtful[start : start + _AT_ONCE]
            settled = await asyncio.gather(*(self._settled(requests[position]) for position in some))
            results.update(zip(some, settled, strict=True))
        return [results[position] for position in range(len(requests))]

    async def _plain(self, requests: Sequence[OrderRequest], entrance: Entrance) -> dict[int, Prepared]:
        """Those that can be decided at once on what this replica knows."""
        plain: dict[int, Prepared] = {}
        try:
            check_room(self._deps)
        except LimitExceeded:
            return plain
        now = times.show(self._deps.clock.wall())
        known = SnapshotCatalogue(self._deps.cache.snapshot)
        for position, request in enumerate(requests):
            if position % _TURN == _TURN - 1:
                await asyncio.sleep(0)
                known = SnapshotCatalogue(self._deps.cache.snapshot)
            try:
                if request.id:
                    self.identities.check(request.id)
                prepare = partial(self.prepare, self.identified(request), orders.digest_of(request), known, now)
                prepared = await self._deps.offload.run(prepare)
                prepared = self._guarded(request, prepared)
                entrance.enter(prepared.order)
                plain[position] = prepared
            except ControlPlaneError:
                # Decided on its own, where a refusal is certain.
                continue
        return plain

    async def _settled(self, request: OrderRequest) -> Submitted | ControlPlaneError:
        try:
            return await self.submit(request)
        except ControlPlaneError as error:
            return error

    def prepare(self, request: OrderRequest, content: str, known: Catalogue, now: str = "") -> Prepared:
        """The order as it would be stored, and the write that does it. The request has its identity (`identified`):
        this may be called in a thread, and identities are made on the loop."""
        found = self._admitted.get(content) if isinstance(known, SnapshotCatalogue) else None
        if found is None:
            found = self._admit(request, content, known)
        order = replace(
            found.order,
            id=request.id,
            created=now or times.show(self._deps.clock.wall()),
        )
        if order.schedule is not None:
            schedule.check_fires(order.schedule, times.parse(order.created, "created"))
        return Prepared(order, transaction.creating(keys.order(order.id), codec.encode(order)), found.warnings)

    def _admit(self, request: OrderRequest, content: str, known: Catalogue) -> Admitted:
        """Kept ones belong to the cache's own catalogue, like the resolutions."""
        orders.check(request, known)
        resolution = self._resolution(request, known)
        limited = bool(resolution.gang_bytes) and gives_time_limits(self._deps.cache.snapshot)
        orders.agree(request, resolution, limited=limited)
        order = orders.build(request, resolution, identity="", now=times.show(times.FIRST), content=content)
        codec.check(order)
        admitted = Admitted(order, warnings.of(request) + orders.doubts(request, resolution, known))
        if isinstance(known, SnapshotCatalogue):
            self._keep(self._admitted, content, admitted, known)
        return admitted

    def identified(self, request: OrderRequest) -> OrderRequest:
        return request if request.id else replace(request, id=self._deps.mint.make())

    async def _prepared(self, request: OrderRequest, content: str) -> Prepared:
        if request.id:
            identity.check(request.id)
        named = self.identified(request)
        return await admitted(self._deps, lambda known: self.prepare(named, content, known))

    def _resolution(self, request: OrderRequest, known: Catalogue) -> Resolution:
        """Kept ones belong to the cache's own catalogue; others are resolved each time."""
        packet = request.packet
        if not isinstance(known, SnapshotCatalogue):
            return resolve(names.packet(known, packet, "packet") if isinstance(packet, str) else packet, known)
        # A name cannot be taken for a digest: those have upper-case letters in front.
        key = packet if isinstance(packet, str) else f"D{content_digest(codec.encode(packet))}"
        found = self._resolutions.get(key)
        if found is None:
            found = resolve(names.packet(known, packet, "packet") if isinstance(packet, str) else packet, known)
            self._keep(self._resolutions, key, found, known)
        return found

    def _guarded(self, request: OrderRequest, prepared: Prepared) -> Prepared:
        """With a write that asks etcd whether the identity was used before, unless nobody can have done that."""
        if not request.id or self.identities.is_fresh(request.id):
            return prepared
        return prepared._replace(item=self.identities.creating(prepared.order))

    async def _created(self, prepared: Prepared) -> Outcome:
        """The create's outcome: it was written, or shows the order that is there."""
        item = prepared.item
        for _ in range(_TRIES):
            outcome, _ = await insist(self._deps, item, lambda: self._again(prepared.order))
            if _is_answer(outcome) or len(outcome.found) == 1:
                return outcome
            item = self.identities.creating(prepared.order, self.identities.judge(prepared.order, outcome))
        raise Unavailable("orders are being cleaned up faster than this one could be written; try again")

    async def _created_all(self, all_prepared: Sequence[Prepared]) -> list[Outcome | ControlPlaneError]:
        """The same for many: what etcd did not answer, or refused, is written again one by one."""
        outcomes = await self._deps.writer.write_all([prepared.item for prepared in all_prepared])
        lost = [at for at, outcome in enumerate(outcomes) if not _is_answer(outcome)]
        for start in range(0, len(lost), _AT_ONCE):
            some = lost[start : start + _AT_ONCE]
            again = (self._once_more(all_prepared[at], outcomes[at]) for at in some)
            for at, outcome in zip(some, await asyncio.gather(*again), strict=True):
                outcomes[at] = outcome
        return outcomes

    async def _once_more(self, prepared: Prepared, before: Outcome | ControlPlaneError) -> Outcome | ControlPlaneError:
        """After an answer that was lost (an error), or a refusal that does not show the order."""
        item = self._again(prepared.order)
        if item is None and isinstance(before, ControlPlaneError):
            return before
        try:
            if item is None:
                self.identities.check(prepared.order.id)
            return await self._created(prepared if item is None else prepared._replace(item=item))
        except ControlPlaneError as error:
            return error

    def _again(self, order: Order) -> Item | None:
        """For a create whose answer was lost: None when the identity may have run and gone meanwhile."""
        try:
            self.identities.check(order.id)
            return self.identities.creating(order)
        except Invalid:
            return None

    async def _known(self, name: str, content: str) -> Submitted | None:
        """The order of that identity if it is there: what was accepted once stays accepted, whatever changed since."""
        try:
            identity.check(name)
        except Invalid:
            return None
        stored = await self._deps.store.get(keys.order(name))
        return None if stored is None else _compared(stored, content, [])


def _is_answer(outcome: Outcome | ControlPlaneError) -> bool:
    """Whether it says what became of the order, which is then there."""
    if isinstance(outcome, Outcome):
        return outcome.succeeded or outcome.found[0] is not None
    return not isinstance(outcome, OutcomeUnknown)


def _landed(
    prepared: Prepared, outcome: Outcome | ControlPlaneError, entrance: Entrance
) -> Submitted | ControlPlaneError:
    """What an answered write means for the client."""
    if isinstance(outcome, ControlPlaneError):
        return outcome
    if outcome.succeeded:
        entrance.stored(prepared.order.id, outcome.revision)
        return Submitted(prepared.order, outcome.revision, False, prepared.warnings)
    stored = outcome.found[0]
    if stored is None:
        return Broken("etcd found an order and did not show it")
    entrance.stored(prepared.order.id, stored.mod_revision)
    try:
        return _compared(stored, prepared.order.digest, prepared.warnings)
    except ControlPlaneError as error:
        return error


def _compared(stored: Value, content: str, found: list[Warning]) -> Submitted:
    try:
        order = places.read(stored, Order)
    except Broken as error:
        raise Broken(f"what is stored at {stored.key} cannot be read: {error}") from None
    if order.digest != content:
        raise AlreadyExists(f"id: order {order.id} exists with other content", field="id")
    return Submitted(order, stored.mod_revision, True, found)
