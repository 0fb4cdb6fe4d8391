"""Resolved packets of orders: a decoded copy for all orders with the same content.

Copies are kept by a digest of the content, computed here: the digest that an order names may belong to another order,
and much state is kept by this digest.
"""

from __future__ import annotations

from msgspec.structs import replace

from controlplane.cache.ledger import check
from controlplane.model.order import Order, Resolved, content_digest
from controlplane.store import codec

_MOST_KEPT = 10_000


def by_own_digest(order: Order) -> Order:
    """The order with the digest of its own content."""
    content = content_digest(order.resolved)
    return order if order.resolved_digest == content else replace(order, resolved_digest=content)


class Contents:
    def __init__(self) -> None:
        self._resolved: dict[str, Resolved] = {}

    def of(self, order: Order) -> Resolved:
        """Broken when the content of the order is not sane."""
        content = content_digest(order.resolved)
        resolved = self._resolved.get(content)
        if resolved is None:
            resolved = codec.decode(bytes(order.resolved), Resolved)
            check(resolved)
            self._resolved[content] = resolved
            if len(self._resolved) > _MOST_KEPT:
                self._resolved.pop(next(iter(self._resolved)))
        return resolved
