"""One key's change as the checks see it: where it is, at which revision, and what was written, decoded once for all.

A value that is no object of its tree has `object` None and is not deleted: checks step over it where poison is allowed
to exist, and call it a violation where only the leader may write.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

import msgspec

from controlplane.model import event
from controlplane.model.cluster import ArchiveStatus, ClusterStatus, Resume
from controlplane.model.errors import Broken
from controlplane.model.fulfilment import Claim, Ended, Fulfilment, Observed
from controlplane.model.identities import Cleaned, DeletedOrder
from controlplane.model.leadership import Candidate, Cycle, Term
from controlplane.model.order import Order, OrderStatus
from controlplane.model.scalepolicy import Made, Scaling
from controlplane.model.settings import Settings
from controlplane.model.target import Live, Target, TargetStatus
from controlplane.model.totals import Totals
from controlplane.store import codec, keys
from controlplane.store.transaction import Value
from controlplane.store.watch import Change

_KINDS: dict[str, type[msgspec.Struct]] = {
    "election": Candidate,
    "terms": Term,
    "config/targets": Target,
    "config/orders": Order,
    "desired": Fulfilment,
    "claims": Claim,
    "status/ended": Ended,
    "status/orders": OrderStatus,
    "status/deleted": DeletedOrder,
    "status/targets": TargetStatus,
    "status/scaling": Scaling,
    "status/made": Made,
    "cycles": Cycle,
    "inventory": Observed,
    "events": event.Event,
}
# The objects of which there is one.
_SINGLES: dict[str, type[msgspec.Struct]] = {
    "settings": Settings,
    "restore": Resume,
    "cluster": ClusterStatus,
    "archive": ArchiveStatus,
    "cleaned": Cleaned,
    "totals": Totals,
}
_BID = "bid-"


@dataclass(frozen=True, slots=True)
class Event:
    """`created` says that the key was not there before; `tree` is empty for a key of no known tree."""

    key: str
    revision: int
    tree: str
    parts: tuple[str, ...]
    deleted: bool
    created: int = 0
    value: bytes = b""
    object: msgspec.Struct | None = None

    @property
    def is_new(self) -> bool:
        return self.created == self.revision


def of_value(stored: Value) -> Event:
    tree, parts = keys.parse(stored.key) or ("", ())
    decoded = _decode(tree, parts, stored.value)
    return Event(
        stored.key, stored.mod_revision, tree, parts, False, stored.create_revision, stored.value, decoded
    )  # fmt: skip


def of_change(change: Change) -> Event:
    if change.value is not None:
        return of_value(change.value)
    tree, parts = keys.parse(change.key) or ("", ())
    return Event(change.key, change.revision, tree, parts, True)


def by_revision(changes: Iterable[Change]) -> Iterator[tuple[int, Sequence[Event]]]:
    """Whole revisions, as a watch delivers them. A transaction's changes are one revision."""
    for revision, together in groupby(changes, key=lambda change: change.revision):
        yield revision, [of_change(change) for change in together]


def _decode(tree: str, parts: tuple[str, ...], value: bytes) -> msgspec.Struct | None:
    kind = _KINDS.get(tree)
    if tree == "inventory":
        kind = Live if parts[1] == keys.LIVE else None if parts[1].startswith(_BID) else Observed
    if tree in ("config", "status"):
        kind = _SINGLES.get(parts[0])
    if kind is None:
        return None
    try:
        return codec.decode(value, kind)
    except Broken:
        return None
