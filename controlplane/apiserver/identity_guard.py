"""Which identities an order may still be created under: one identity runs once.

An identity is refused when it is older than finished orders are kept, not newer than what was cleaned up, that of an
order that its user deleted, or too far ahead of the clock. What this replica's cache may not know yet, etcd compares,
but for the first try of an identity that was made a moment ago: its order cannot have come and gone unheard since then.
"""

from __future__ import annotations

from controlplane.apiserver.dependencies import ApiDependencies
from controlplane.cache import identities
from controlplane.cache.identities import CleanedMark
from controlplane.cache.settings import settings_of
from controlplane.model import identity, times
from controlplane.model.errors import Broken, Invalid
from controlplane.model.identities import AHEAD_SECONDS, Cleaned
from controlplane.model.order import Order
from controlplane.store import codec, keys, transaction
from controlplane.store.transaction import Compare, Item, Outcome, Value

_FRESH_SECONDS = 2.0


class IdentityGuard:
    def __init__(self, deps: ApiDependencies) -> None:
        self._deps = deps

    def check(self, name: str) -> None:
        """Invalid when no order may be created under this identity, as far as this replica knows."""
        made, snapshot = identity.milliseconds(name), self._deps.cache.snapshot
        self._check_age(made, identities.cleaned(snapshot).milliseconds)
        if self._is_ahead(made):
            raise Invalid("id", f"must not be more than {AHEAD_SECONDS:.0f} s ahead of the clock of this replica")
        if identities.was_deleted(snapshot, name):
            raise _deleted(name)

    def is_fresh(self, name: str) -> bool:
        """Whether it was made a moment ago, and this replica has not heard of it."""
        if abs(self._now() - identity.milliseconds(name) / 1000) >= _FRESH_SECONDS:
            return False
        snapshot = self._deps.cache.snapshot
        return snapshot.get("config/orders", name) is None and snapshot.get("status/orders", name) is None

    def creating(self, order: Order, mark: CleanedMark | None = None) -> Item:
        """Puts the order unless it is there or was there before; shows what is in the way. Invalid: it is too old."""
        mark = mark or identities.cleaned(self._deps.cache.snapshot)
        self._check_age(identity.milliseconds(order.id), mark.milliseconds)
        key, old = keys.order(order.id), self.unused(order.id)
        look = (key, keys.order_status(order.id), keys.deleted_order(order.id), keys.CLEANED)
        return Item(
            compares=(transaction.absent(key), *old, self.unmoved(mark)),
            then=(transaction.put(key, codec.encode(order)),),
            otherwise=tuple(transaction.get(name) for name in look),
        )

    def unused(self, name: str) -> tuple[Compare, ...]:
        """Compares that no order of this identity was there before."""
        return transaction.absent(keys.order_status(name)), transaction.absent(keys.deleted_order(name))

    def unmoved(self, mark: CleanedMark | None = None) -> Compare:
        """Compares that nothing was cleaned up that this replica does not know of."""
        mark = mark or identities.cleaned(self._deps.cache.snapshot)
        return transaction.mod_is(keys.CLEANED, mark.revision)

    def judge(self, order: Order, outcome: Outcome) -> CleanedMark:
        """After a refused `creating` that shows no order: the mark to try again on. Invalid when it was deleted."""
        _, status, deleted, record = outcome.found
        if status is not None or deleted is not None:
            raise _deleted(order.id)
        return _mark_in(record)

    def _check_age(self, made: int, cleaned: int) -> None:
        kept = settings_of(self._deps.cache.snapshot).clean_up
        # A mark that lies ahead was written by no leader, and must not refuse everything.
        if made < (self._now() - kept) * 1000 or (made <= cleaned and not self._is_ahead(cleaned)):
            raise Invalid("id", "is older than the time for which finished orders are kept, and not known")

    def _is_ahead(self, milliseconds: int) -> bool:
        """Whether the moment lies too far ahead of the own clock and, if that may be behind, of what others say."""
        latest = milliseconds / 1000 - AHEAD_SECONDS
        now = self._now()
        if latest <= now:
            return False
        behind = -min(0.0, self._deps.election.clocks_off().get(self._deps.replica_id, 0.0))
        return latest > max(now + behind, self._led_since())

    def _led_since(self) -> float:
        term = self._deps.election.leader()
        try:
            return times.parse(term.since, "since").timestamp() if term is not None else 0.0
        except Invalid:
            return 0.0

    def _now(self) -> float:
        return self._deps.clock.wall().timestamp()


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
