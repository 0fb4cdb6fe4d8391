"""What orders resolved to: one decoded copy for all orders with the same content.

By a digest of the content itself, worked out here: what an order says of it may be that of another order, and much that
is known of one content is kept by its digest.
"""

from __future__ import annotations

from msgspec.structs import replace

from controlplane.cache.ledger import check
from controlplane.model.order import Order, Resolved, content_digest
from controlplane.store import codec

_MOST_KEPT = 10_000


def by_own_digest(order: Order) -> Order:
    """The order with the digest of what it carries."""
    content = content_digest(order.resolved)
    return order if order.resolved_digest == content else replace(order, resolved_digest=content)


class Contents:
    def __init__(self) -> None:
        self._resolved: dict[str, Resolved] = {}

    def of(self, order: Order) -> Resolved:
        """Broken when what the order carries is not sane."""
        content = content_digest(order.resolved)
        found = self._resolved.get(content)
        if found is None:
            found = codec.decode(bytes(order.resolved), Resolved)
            check(found)
            self._resolved[content] = found
            if len(self._resolved) > _MOST_KEPT:
                self._resolved.pop(next(iter(self._resolved)))
        return found
