"""Every key of the system: trees and single keys, the structs under them, and how keys are made and parsed.

A `Tree` is a fixed front (`config/orders`, `desired`, ...), the number of parts behind the front, and the struct of all
values. A `Single` is a whole key with the struct of the value. `parse` turns a key into (tree, parts); a key outside of
all trees parses to None and is left alone. `rule_of` names the struct under a key, and the key under which an object
belongs: an object whose name, identity or epoch differs from the key must not be acted on.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Generic, NamedTuple, TypeVar

import msgspec

from controlplane.model import kinds
from controlplane.model.access import Binding, Token
from controlplane.model.cleaned_orders import Cleaned, DeletedOrder
from controlplane.model.cluster import ArchiveStatus, ClusterStatus, Resume
from controlplane.model.event import Event
from controlplane.model.fulfilment import Claim, Ended, Fulfilment, Observed, Preemption
from controlplane.model.hosting import Hosting
from controlplane.model.isolation import Isolation
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

ROOT = "/controlplane/"
# The last part of the key of a target's live record, which stands beside the reports of its fulfilments.
LIVE = "live"
# In no tree and empty: rewritten when a watch has to prove that it is up to date.
MARK = f"{ROOT}mark"

S = TypeVar("S", bound=msgspec.Struct)
S_co = TypeVar("S_co", bound=msgspec.Struct, covariant=True)
Parts = tuple[str, ...]
# The parts of the key under which an object belongs.
PartsOf = Callable[[Any], Parts]


class KeyRule(NamedTuple):
    """The struct under a key, and the parts of an object's own key; None where the object does not hold the parts."""

    struct: type[msgspec.Struct]
    parts_of: PartsOf | None = None


class Tree(str, Generic[S_co]):
    """A front of keys: a str that is equal to the tree's name, typed by the struct of the values."""

    struct: type[S_co]
    depth: int
    prefix: str
    rule: KeyRule

    def __new__(cls, name: str, struct: type[S_co], depth: int, parts_of: PartsOf | None = None) -> Tree[S_co]:
        tree = super().__new__(cls, name)
        tree.struct, tree.depth, tree.prefix = struct, depth, f"{ROOT}{name}/"
        tree.rule = KeyRule(struct, parts_of)
        return tree


class Single(str, Generic[S_co]):
    """A key without siblings, typed by the struct of the value.

    `place` is (tree, part), as `parse` gives the key; `name` is the key without the root.
    """

    struct: type[S_co]
    place: tuple[str, str]
    name: str

    def __new__(cls, front: str, name: str, struct: type[S_co]) -> Single[S_co]:
        single = super().__new__(cls, f"{ROOT}{front}/{name}")
        single.struct, single.place, single.name = struct, (front, name), f"{front}/{name}"
        return single


def _config(struct: type[S], field: str = "") -> Tree[S]:
    """The tree of config objects of a kind; `field` is the field that the key repeats."""
    name = f"config/{kinds.kind_of(struct).plural}"
    return _by(name, struct, field) if field else Tree(name, struct, 1)


def _by(name: str, struct: type[S], *fields: str) -> Tree[S]:
    """A tree whose keys repeat these fields of the objects."""
    if len(fields) == 1:
        (field,) = fields
        return Tree(name, struct, 1, lambda item: (getattr(item, field),))
    first, second = fields
    return Tree(name, struct, 2, lambda item: (getattr(item, first), getattr(item, second)))


def padded(number: int) -> str:
    """A number as a part of a key: keys sort as their numbers do."""
    return f"{number:020d}"


CANDIDATES = Tree("election", Candidate, 1)
TERMS = Tree("terms", Term, 1, lambda term: (padded(term.epoch),))
JOBS = _config(Job, "name")
PACKETS = _config(Packet, "name")
RESOURCES = _config(Resource, "name")
TARGETS = _config(Target, "name")
RULES = _config(Rule, "name")
SCALE_POLICIES = _config(ScalePolicy, "name")
# The name is sealed with the content of the secret, and compared when the secret is opened.
SECRETS = _config(Secret)
ORDERS = _config(Order, "id")
TOKENS = _by("config/tokens", Token, "id")
BINDINGS = _by("config/bindings", Binding, "name")
DESIRED = _by("desired", Fulfilment, "target", "id")
CLAIMS = _by("claims", Claim, "resource")
ENDED = _by("status/ended", Ended, "order", "id")
ORDER_STATUS = _by("status/orders", OrderStatus, "order")
DELETED_ORDERS = _by("status/deleted", DeletedOrder, "order")
TARGET_STATUS = _by("status/targets", TargetStatus, "target")
SCALING = _by("status/scaling", Scaling, "policy")
MADE = _by("status/made", Made, "target")
HOSTING = _by("status/hosting", Hosting, "target")
PREEMPTIONS = _by("status/preemptions", Preemption, "target", "fulfilment")
CYCLES = Tree("cycles", Cycle, 2, lambda cycle: (padded(cycle.epoch), padded(cycle.n)))
# Reports of fulfilments. The live record of the target, of another struct, stands among them: see `live`.
INVENTORY = _by("inventory", Observed, "target", "id")
EVENTS = _by("events", Event, "id")
# The fronts of single keys: the struct of each is in SINGLES.
CONFIG = Tree("config", msgspec.Struct, 1)
STATUS = Tree("status", msgspec.Struct, 1)

SETTINGS = Single(CONFIG, "settings", Settings)
RESTORE = Single(CONFIG, "restore", Resume)
CLUSTER_STATUS = Single(STATUS, "cluster", ClusterStatus)
ARCHIVE_STATUS = Single(STATUS, "archive", ArchiveStatus)
CLEANED = Single(STATUS, "cleaned", Cleaned)
TOTALS = Single(STATUS, "totals", Totals)
ISOLATED = Single(STATUS, "isolated", Isolation)

# Every tree and every single key of this module.
TREES: tuple[Tree[Any], ...] = tuple(value for value in list(globals().values()) if isinstance(value, Tree))
SINGLES: tuple[Single[Any], ...] = tuple(value for value in list(globals().values()) if isinstance(value, Single))

_SHALLOW = {tree.prefix[:-1]: tree for tree in TREES if tree.depth == 1}
_DEEP = {tree.prefix[:-1]: tree for tree in TREES if tree.depth == 2}
_BY_STRUCT: Mapping[type[msgspec.Struct], Tree[Any]] = {tree.struct: tree for tree in TREES}
_RULES: Mapping[str, KeyRule] = {tree: tree.rule for tree in TREES if tree.struct is not msgspec.Struct}
_SINGLE_RULES: Mapping[tuple[str, str], KeyRule] = {single.place: KeyRule(single.struct) for single in SINGLES}
_LIVE_RULE = KeyRule(Live, lambda live: (live.target, LIVE))


def tree_of(struct: type[S]) -> Tree[S]:
    """The tree of the objects of that struct."""
    return _BY_STRUCT[struct]


def rule_of(tree: str, parts: Parts) -> KeyRule | None:
    """None for a key of no tree, and for a single key that is not in SINGLES."""
    if tree == INVENTORY and parts[1] == LIVE:
        return _LIVE_RULE
    return _RULES.get(tree) or _SINGLE_RULES.get((tree, parts[0]))


def candidate(lease: int) -> str:
    return f"{CANDIDATES.prefix}{lease:x}"


def term(epoch: int) -> str:
    return f"{ROOT}terms/{padded(epoch)}"


def config(kind: str, name: str) -> str:
    return f"{ROOT}config/{kind}/{name}"


def order(identity: str) -> str:
    return f"{ROOT}config/orders/{identity}"


def desired(target: str, fulfilment: str) -> str:
    return f"{ROOT}desired/{target}/{fulfilment}"


def desired_on(target: str) -> str:
    return f"{ROOT}desired/{target}/"


def claim(resource: str) -> str:
    return f"{ROOT}claims/{resource}"


def ended(order_id: str, fulfilment: str) -> str:
    return f"{ROOT}status/ended/{order_id}/{fulfilment}"


def order_status(order_id: str) -> str:
    return f"{ROOT}status/orders/{order_id}"


def deleted_order(order_id: str) -> str:
    return f"{ROOT}status/deleted/{order_id}"


def target_status(target: str) -> str:
    return f"{ROOT}status/targets/{target}"


def scaling(policy: str) -> str:
    return f"{ROOT}status/scaling/{policy}"


def made(target: str) -> str:
    return f"{MADE.prefix}{target}"


def hosting(target: str) -> str:
    return f"{ROOT}status/hosting/{target}"


def preemption(target: str, fulfilment: str) -> str:
    return f"{ROOT}status/preemptions/{target}/{fulfilment}"


def cycle(epoch: int, n: int) -> str:
    return f"{ROOT}cycles/{padded(epoch)}/{padded(n)}"


def event(identity: str) -> str:
    return f"{ROOT}events/{identity}"


def live(target: str) -> str:
    return f"{ROOT}inventory/{target}/{LIVE}"


def observed(target: str, fulfilment: str) -> str:
    return f"{ROOT}inventory/{target}/{fulfilment}"


def parse(key: str) -> tuple[Tree[Any], Parts] | None:
    """Two look-ups at most: called for every key of every change."""
    front, _, last = key.rpartition("/")
    tree = _SHALLOW.get(front)
    if tree is not None:
        return (tree, (last,)) if last else None
    front, _, first = front.rpartition("/")
    tree = _DEEP.get(front)
    return (tree, (first, last)) if tree is not None and first and last else None


def after_prefix(prefix: str) -> bytes:
    """The end of the range of all keys with this prefix, as etcd wants it."""
    raw = prefix.encode()
    return raw[:-1] + bytes([raw[-1] + 1])
