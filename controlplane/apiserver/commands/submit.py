"""Submitting orders: idempotent by identity.

A submit compares only that its order is absent. When the order exists, the digest of the request as sent tells a repeat
from another order. An identity runs once (`identity_guard`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

from controlplane.apiserver import authorisation, large_requests
from controlplane.apiserver.admission import order_admission
from controlplane.apiserver.admission.admit_caught_up import SnapshotCatalogue, admit_caught_up
from controlplane.apiserver.admission.admit_order import OrderAdmission, PreparedOrder
from controlplane.apiserver.admission.field_warnings import FieldWarning
from controlplane.apiserver.admission.order_quotas import Entrance, Quotas
from controlplane.apiserver.api_ports import ElectionPort, Reads, Writes
from controlplane.apiserver.call import Call
from controlplane.apiserver.commands.guarded_writes import check_room, write_until_answered
from controlplane.apiserver.commands.identity_guard import IdentityGuard
from controlplane.apiserver.commands.turnstile import Turnstile
from controlplane.model import identity, times
from controlplane.model.access import Subject
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
from controlplane.model.order import Order, OrderRequest
from controlplane.store import codec, keys
from controlplane.store.transaction import Item, Outcome, Value

_TURN = 100
_AT_ONCE = 50
_TRIES = 5


class Submitted(NamedTuple):
    order: Order
    revision: int
    repeated: bool
    warnings: list[FieldWarning]


class Submissions:
    def __init__(self, reads: Reads, writes: Writes, election: ElectionPort, replica_id: str) -> None:
        self._reads = reads
        self._writes = writes
        self.admission = OrderAdmission(reads, writes)
        self.quotas = Quotas(reads.ledgers)
        self.identities = IdentityGuard(reads, writes.clock, election, replica_id)
        self.turnstile = Turnstile(reads.ledgers, writes.clock)

    async def submit(self, call: Call, request: OrderRequest) -> Submitted:
        """The order, new or repeated. OutcomeUnknown only when etcd never answered."""
        digest = order_admission.digest_of(request, call.subject)
        with self.quotas.entrance() as entrance:
            try:
                if request.id:
                    self.identities.check(request.id)
                check_room(self._writes)
                prepared = self._guarded(request, await self._prepared(call, request, digest))
                entrance.enter(prepared.order)
            except Refused as refusal:
                repeated = await self._stored_before(call.subject, request.id, digest)
                if repeated is None:
                    raise refusal from None
                return repeated
            done = _landed(call.subject, prepared, await self._created(prepared), entrance)
        if isinstance(done, ControlPlaneError):
            raise done
        return done

    async def submit_all(self, call: Call, requests: Sequence[OrderRequest]) -> list[Submitted | ControlPlaneError]:
        """Each order's own result. Orders decided at once travel together; others are submitted on their own."""
        with self.quotas.entrance() as entrance:
            plain = await self._plain(call, requests, entrance)
            outcomes = await self._created_all(list(plain.values()))
            results = {
                position: _landed(call.subject, plain[position], outcome, entrance)
                for position, outcome in zip(plain, outcomes, strict=True)
            }
        doubtful = [position for position in range(len(requests)) if position not in plain]
        for start in range(0, len(doubtful), _AT_ONCE):
            some = doubtful[start : start + _AT_ONCE]
            settled = await asyncio.gather(*(self._settled(call, requests[position]) for position in some))
            results.update(zip(some, settled, strict=True))
        return [results[position] for position in range(len(requests))]

    async def _plain(
        self, call: Call, requests: Sequence[OrderRequest], entrance: Entrance
    ) -> dict[int, PreparedOrder]:
        """The orders, by their position, which this replica can decide at once."""
        plain: dict[int, PreparedOrder] = {}
        try:
            check_room(self._writes)
        except LimitExceeded:
            return plain
        now = times.show(self._writes.clock.wall())
        existing = SnapshotCatalogue(self._reads.cache.snapshot, call.subject)
        for position, request in enumerate(requests):
            if position % _TURN == _TURN - 1:
                await asyncio.sleep(0)
                existing = SnapshotCatalogue(self._reads.cache.snapshot, call.subject)
            try:
                if request.id:
                    self.identities.check(request.id)
                named = self.admission.identified(request)
                prepare = partial(self.admission.prepare, call.subject, named, existing, now=now)
                prepared = self._guarded(request, await large_requests.run(prepare))
                entrance.enter(prepared.order)
                plain[position] = prepared
            except ControlPlaneError:
                # Decided on its own, where a refusal is certain.
                continue
        return plain

    async def _settled(self, call: Call, request: OrderRequest) -> Submitted | ControlPlaneError:
        try:
            return await self.submit(call, request)
        except ControlPlaneError as error:
            return error

    async def _prepared(self, call: Call, request: OrderRequest, digest: str) -> PreparedOrder:
        if request.id:
            identity.check(request.id)
        named = self.admission.identified(request)
        return await admit_caught_up(
            self._reads,
            call.subject,
            lambda existing: self.admission.prepare(call.subject, named, existing, digest=digest),
        )

    def _guarded(self, request: OrderRequest, prepared: PreparedOrder) -> PreparedOrder:
        """The order with a write that compares for earlier use of its identity, unless earlier use is impossible."""
        if not request.id or self.identities.is_fresh(request.id):
            return prepared
        return prepared._replace(item=self.identities.creating(prepared.order))

    async def _created(self, prepared: PreparedOrder) -> Outcome:
        """The outcome of the create: written, or refused with the present order shown."""
        item = prepared.item
        for _ in range(_TRIES):
            outcome, _ = await write_until_answered(self._writes, item, lambda: self._again(prepared.order))
            if _is_answer(outcome) or len(outcome.found) == 1:
                return outcome
            item = self.identities.creating(prepared.order, self.identities.judge(prepared.order, outcome))
        raise Unavailable("orders are being cleaned up faster than this one could be written; try again")

    async def _created_all(self, all_prepared: Sequence[PreparedOrder]) -> list[Outcome | ControlPlaneError]:
        """The same for many orders: creates without an answer, and refused ones, are written again singly."""
        outcomes = await self._writes.writer.write_all([prepared.item for prepared in all_prepared])
        lost = [at for at, outcome in enumerate(outcomes) if not _is_answer(outcome)]
        for start in range(0, len(lost), _AT_ONCE):
            some = lost[start : start + _AT_ONCE]
            again = (self._once_more(all_prepared[at], outcomes[at]) for at in some)
            for at, outcome in zip(some, await asyncio.gather(*again), strict=True):
                outcomes[at] = outcome
        return outcomes

    async def _once_more(
        self, prepared: PreparedOrder, before: Outcome | ControlPlaneError
    ) -> Outcome | ControlPlaneError:
        """A create again after a lost answer (an error), or after a refusal without the order shown."""
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
        """The create to repeat after a lost answer; None when the identity may have run and gone meanwhile."""
        try:
            self.identities.check(order.id)
            return self.identities.creating(order)
        except Invalid:
            return None

    async def _stored_before(self, subject: Subject, name: str, digest: str) -> Submitted | None:
        """The order of the identity, if there is one: an accepted order stays accepted, whatever changed since."""
        try:
            identity.check(name)
        except Invalid:
            return None
        stored = await self._reads.store.get(keys.order(name))
        return None if stored is None else _compared(subject, stored, digest, [])


def _is_answer(outcome: Outcome | ControlPlaneError) -> bool:
    """Whether the outcome settles the create: the order exists, or an error other than a lost answer."""
    if isinstance(outcome, Outcome):
        return outcome.succeeded or outcome.found[0] is not None
    return not isinstance(outcome, OutcomeUnknown)


def _landed(
    subject: Subject, prepared: PreparedOrder, outcome: Outcome | ControlPlaneError, entrance: Entrance
) -> Submitted | ControlPlaneError:
    """The meaning of an answered write for the client."""
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
        return _compared(subject, stored, prepared.order.digest, prepared.warnings)
    except ControlPlaneError as error:
        return error


def _compared(subject: Subject, stored: Value, digest: str, warnings: list[FieldWarning]) -> Submitted:
    """The order of an earlier submit. Of an order that the subject may not see, only the identity is told."""
    identity = stored.key.rpartition("/")[2]
    taken = AlreadyExists(f"id: order {identity} exists with other content", field="id")
    try:
        order = codec.read(stored, Order)
    except Broken as error:
        if authorisation.visible_owners(subject) is not None:
            raise taken from None
        raise Broken(f"what is stored at {stored.key} cannot be read: {error}") from None
    if order.digest != digest or not authorisation.sees(subject, "Order", order.owner):
        raise taken
    return Submitted(order, stored.mod_revision, True, warnings)
