"""Every key of the system, made and taken apart in one place.

`parse` turns a key into (tree, parts): the tree is the fixed front (`config/orders`, `desired`, ...), the parts are
the names behind it. A key that fits no tree parses to None and is left alone.
"""

from __future__ import annotations

ROOT = "/controlplane/"
ELECTION = f"{ROOT}election/"
MADE = f"{ROOT}status/made/"
SETTINGS = f"{ROOT}config/settings"

CONFIG_KINDS = ("jobs", "packets", "resources", "targets", "rules", "scalepolicies")
# The number of parts that follow each tree's front.
TREES: dict[str, int] = {
    "election": 1,
    "terms": 1,
    "config": 1,  # config/settings
    **{f"config/{kind}": 1 for kind in CONFIG_KINDS},
    "config/orders": 1,
    "desired": 2,
    "claims": 1,
    "status/ended": 2,
    "status/orders": 1,
    "status/targets": 1,
    "status/scaling": 1,
    "status/made": 1,
    "cycles": 2,
    "inventory": 2,
}
LIVE = "live"
_NAME = ROOT.strip("/")
_NONE: dict[str, tuple[str, int]] = {}
# The trees whose front has two pieces, by the first and the second of them, with the number of parts that follow.
_INNER: dict[str, dict[str, tuple[str, int]]] = {}
for _tree, _parts in TREES.items():
    if "/" in _tree:
        _INNER.setdefault(_tree.split("/")[0], {})[_tree.split("/")[1]] = (_tree, _parts)


def candidate(lease: int) -> str:
    return f"{ELECTION}{lease:x}"


def term(epoch: int) -> str:
    return f"{ROOT}terms/{epoch:020d}"


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


def ended_of(order_id: str) -> str:
    return f"{ROOT}status/ended/{order_id}/"


def order_status(order_id: str) -> str:
    return f"{ROOT}status/orders/{order_id}"


def target_status(target: str) -> str:
    return f"{ROOT}status/targets/{target}"


def scaling(policy: str) -> str:
    return f"{ROOT}status/scaling/{policy}"


def made(target: str) -> str:
    return f"{MADE}{target}"


def cycle(epoch: int, n: int) -> str:
    return f"{ROOT}cycles/{epoch:020d}/{n:020d}"


def live(target: str) -> str:
    return f"{ROOT}inventory/{target}/{LIVE}"


def observed(target: str, fulfilment: str) -> str:
    return f"{ROOT}inventory/{target}/{fulfilment}"


def parse(key: str) -> tuple[str, tuple[str, ...]] | None:
    """Read for every key that anybody writes, so that it does no more than it must."""
    pieces = key.split("/")
    # The first piece is what stands before the first slash; any other empty one makes it a foreign key.
    if len(pieces) < 4 or pieces[1] != _NAME or pieces[0] or pieces.count("") != 1:
        return None
    depth = len(pieces) - 3
    front = pieces[2]
    if TREES.get(front) == depth:
        return front, tuple(pieces[3:])
    found = _INNER.get(front, _NONE).get(pieces[3])
    if found is not None and found[1] == depth - 1:
        return found[0], tuple(pieces[4:])
    return None


def after_prefix(prefix: str) -> bytes:
    """The end of the range of all keys with this prefix, as etcd wants it."""
    raw = prefix.encode()
    return raw[:-1] + bytes([raw[-1] + 1])
