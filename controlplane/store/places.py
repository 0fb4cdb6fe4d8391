"""Which struct stands in which tree, and whether an object stands under its own key.

An object whose name, identity or epoch is not that of its key is not sane: whoever acted on it would act on something
else. A tree that is not here holds nothing that anybody reads.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, TypeVar

import msgspec

from controlplane.model.cluster import ArchiveStatus, ClusterStatus, Resume
from controlplane.model.errors import Broken
from controlplane.model.event import Event
from controlplane.model.fulfilment import Claim, Ended, Fulfilment, Observed
from controlplane.model.hosting import Hosting
from controlplane.model.identities import Cleaned, DeletedOrder
from controlplane.model.job import Job
from controlplane.model.leadership import Candidate, Cycle, Term
from controlplane.model.order import Order, OrderStatus
from controlplane.model.packet import Packet
from controlplane.model.resource import Resource
from controlplane.model.rule import Rule
from controlplane.model.scalepolicy import Made, ScalePolicy, Scaling
from controlplane.model.secret import Secret
from controlplane.model.settings import Settings
from controlplane.model.target import Live, Target, TargetStatus
from controlplane.model.totals import Totals
from controlplane.store import codec, keys
from controlplane.store.transaction import Value

S = TypeVar("S", bound=msgspec.Struct)


class KeyRule(NamedTuple):
    """A struct, and the parts of the key under which an object of it belongs; None where the key is not in it."""

    kind: type[msgspec.Struct]
    parts: Callable[[Any], tuple[str, ...]] | None = None


def _named(kind: type[msgspec.Struct], *fields: str) -> KeyRule:
    if len(fields) == 1:
        (field,) = fields
        return KeyRule(kind, lambda item: (getattr(item, field),))
    first, second = fields
    return KeyRule(kind, lambda item: (getattr(item, first), getattr(item, second)))


def _padded(number: int) -> str:
    return f"{number:020d}"


PLACES: Mapping[str, KeyRule] = {
    "election": KeyRule(Candidate),
    "terms": KeyRule(Term, lambda term: (_padded(term.epoch),)),
    "config/jobs": _named(Job, "name"),
    "config/packets": _named(Packet, "name"),
    "config/resources": _named(Resource, "name"),
    "config/targets": _named(Target, "name"),
    "config/rules": _named(Rule, "name"),
    "config/scalepolicies": _named(ScalePolicy, "name"),
    # The name is sealed with what the secret holds: who opens it finds out, and tells.
    "config/secrets": KeyRule(Secret),
    "config/orders": _named(Order, "id"),
    "desired": _named(Fulfilment, "target", "id"),
    "claims": _named(Claim, "resource"),
    "status/ended": _named(Ended, "order", "id"),
    "status/orders": _named(OrderStatus, "order"),
    "status/deleted": _named(DeletedOrder, "order"),
    "status/targets": _named(TargetStatus, "target"),
    "status/scaling": _named(Scaling, "policy"),
    "status/made": _named(Made, "target"),
    "status/hosting": _named(Hosting, "target"),
    "cycles": KeyRule(Cycle, lambda cycle: (_padded(cycle.epoch), _padded(cycle.n))),
    "inventory": _named(Observed, "target", "id"),
    "events": _named(Event, "id"),
}
_LIVE = KeyRule(Live, lambda live: (live.target, keys.LIVE))
# The objects of which there is one, by the parts of their key.
SINGLES: Mapping[tuple[str, str], KeyRule] = {
    ("config", "settings"): KeyRule(Settings),
    ("config", "restore"): KeyRule(Resume),
    ("status", "cluster"): KeyRule(ClusterStatus),
    ("status", "archive"): KeyRule(ArchiveStatus),
    ("status", "cleaned"): KeyRule(Cleaned),
    ("status", "totals"): KeyRule(Totals),
}


def rule_of(tree: str, parts: tuple[str, ...]) -> KeyRule | None:
    if tree == "inventory":
        return _LIVE if parts[1] == keys.LIVE else PLACES[tree]
    return PLACES.get(tree) or SINGLES.get((tree, parts[0]))


def read(stored: Value, kind: type[S], tree: str = "", parts: tuple[str, ...] = ()) -> S:
    """The object under that key; Broken when the value is not sane, or is that of another key."""
    item = codec.decode(stored.value, kind)
    if not tree:
        tree, parts = keys.parse(stored.key) or ("", ())
    rule = rule_of(tree, parts) if parts else None
    if rule is None or rule.kind is not kind or rule.parts is None:
        return item
    own = rule.parts(item)
    if own != parts:
        raise Broken(f"not a {kind.__name__} of this key: it belongs under {'/'.join((tree, *own))[:256]}")
    return item
