"""IdentityGuard: the identities under which an order may still be created. An identity runs once.

An identity is refused when it is older than the time for which finished orders are kept, not newer than the last order
cleaned up, the identity of a deleted order, or too far ahead of the clock. Etcd compares for orders unknown to this
replica's cache. The first try of an identity made a moment ago needs no compare: its order cannot have come and gone
unheard.
"""

from __future__ import annotations

from controlplane.aio.clock import Clock
from controlplane.apiserver.api_ports import ElectionPort, Reads
from controlplane.cache import identities
from controlplane.cache.effective_settings import settings_of
from controlplane.cache.identities import CleanedMark
from controlplane.model import identity, times
from controlplane.model.cleaned_orders import AHEAD_SECONDS, Cleaned
from controlplane.model.errors import Broken, Invalid
from controlplane.model.order import Order
from controlplane.store import codec, keys, transaction
from controlplane.store.transaction import Compare, Item, Outcome, Value

_FRESH_SECONDS = 2.0


class IdentityGuard:
    def __init__(self, reads: Reads, clock: Clock, election: ElectionPort, replica_id: str) -> None:
        self._reads = reads
        self._clock = clock
        self._election = election
        self._replica_id = replica_id

    def check(self, name: str) -> None:
        """Invalid when no order may be created under this identity, as far as this replica knows."""
        made_at, snapshot = identity.milliseconds(name), self._reads.cache.snapshot
        self._check_age(made_at, identities.cleaned(snapshot).milliseconds)
        if self._is_ahead(made_at):
            raise Invalid("id", f"must not be more than {AHEAD_SECONDS:.0f} s ahead of the clock of this replica")
        if identities.was_deleted(snapshot, name):
            raise _deleted(name)

    def is_fresh(self, name: str) -> bool:
        """Whether the identity was made a moment ago, and this replica has not heard of its order."""
        if abs(self._now() - identity.milliseconds(name) / 1000) >= _FRESH_SECONDS:
            return False
        snapshot = self._reads.cache.snapshot
        return not snapshot.has(keys.ORDERS, name) and not snapshot.has(keys.ORDER_STATUS, name)

    def creating(self, order: Order, mark: CleanedMark | None = None) -> Item:
        """Puts the order unless its identity was used; shows the keys in the way. Invalid: the identity is too old."""
        mark = mark or identities.cleaned(self._reads.cache.snapshot)
        self._check_age(identity.milliseconds(order.id), mark.milliseconds)
        key, old = keys.order(order.id), self.unused(order.id)
        look = (key, keys.order_status(order.id), keys.deleted_order(order.id), keys.CLEANED)
        return Item(
            compares=(transaction.absent(key), *old, self.unmoved(mark)),
            then=(transaction.put(key, codec.encode(order)),),
            otherwise=tuple(transaction.get(name) for name in look),
        )

    def unused(self, name: str) -> tuple[Compare, ...]:
        """Compares that no order of this identity existed before."""
        return transaction.absent(keys.order_status(name)), transaction.absent(keys.deleted_order(name))

    def unmoved(self, mark: CleanedMark | None = None) -> Compare:
        """Compares that no order was cleaned up unknown to this replica."""
        mark = mark or identities.cleaned(self._reads.cache.snapshot)
        return transaction.mod_is(keys.CLEANED, mark.revision)

    def judge(self, order: Order, outcome: Outcome) -> CleanedMark:
        """The mark for another try, after a refused `creating` without an order shown. Invalid for a deleted order."""
        _, status, deleted, record = outcome.found
        if status is not None or deleted is not None:
            raise _deleted(order.id)
        return _mark_in(record)

    def _check_age(self, made_at: int, cleaned: int) -> None:
        kept = settings_of(self._reads.cache.snapshot).clean_up
        # A mark ahead of the clock was written by no leader, and must not refuse every order.
        if made_at < (self._now() - kept) * 1000 or (made_at <= cleaned and not self._is_ahead(cleaned)):
            raise Invalid("id", "is older than the time for which finished orders are kept, and not known")

    def _is_ahead(self, milliseconds: int) -> bool:
        """Whether the moment lies too far ahead of the own clock and, if the own clock may be late, of other clocks."""
        latest = milliseconds / 1000 - AHEAD_SECONDS
        now = self._now()
        if latest <= now:
            return False
        behind = -min(0.0, self._election.clocks_off().get(self._replica_id, 0.0))
        return latest > max(now + behind, self._led_since())

    def _led_since(self) -> float:
        term = self._election.leader()
        try:
            return times.parse(term.since, "since").timestamp() if term is not None else 0.0
        except Invalid:
            return 0.0

    def _now(self) -> float:
        return self._clock.wall().timestamp()


def _deleted(name: str) -> Invalid:
    return Invalid("id", f"is that of an order that was deleted, and cannot be used again: {name}")


def _mark_in(record: Value | None) -> CleanedMark:
    if record is None:
        return CleanedMark()
    try:
        read = codec.decode(record.value, Cleaned)
    except Broken:
        read = None
    return CleanedMark(identities.milliseconds_of(read), record.mod_revision)
