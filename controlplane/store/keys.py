"""Every key of the system, made and taken apart in one place.

`parse` turns a key into (tree, parts): the tree is the fixed front (`config/orders`, `desired`, ...), the parts are
the names behind it. A key that fits no tree parses to None and is left alone.
"""

from __future__ import annotations

ROOT = "/controlplane/"
ELECTION = f"{ROOT}election/"
MADE = f"{ROOT}status/made/"
SETTINGS = f"{ROOT}config/settings"
RESTORE = f"{ROOT}config/restore"
CLUSTER_STATUS = f"{ROOT}status/cluster"
ARCHIVE_STATUS = f"{ROOT}status/archive"
CLEANED = f"{ROOT}status/cleaned"
TOTALS = f"{ROOT}status/totals"
# Belongs to no tree and says nothing: written again when a watch has to show that it is up to date.
MARK = f"{ROOT}mark"
TOTALS_PLACE = ("status", "totals")
ISOLATED = f"{ROOT}status/isolated"
ISOLATED_PLACE = ("status", "isolated")

CONFIG_KINDS = ("jobs", "packets", "resources", "targets", "rules", "scalepolicies", "secrets")
# The number of parts that follow each tree's front.
TREES: dict[str, int] = {
    "election": 1,
    "terms": 1,
    "config": 1,  # config/settings, config/restore
    "status": 1,  # status/cluster, status/archive, status/totals, status/isolated
    **{f"config/{kind}": 1 for kind in CONFIG_KINDS},
    "config/orders": 1,
    "desired": 2,
    "claims": 1,
    "status/ended": 2,
    "status/orders": 1,
    "status/deleted": 1,
    "status/targets": 1,
    "status/scaling": 1,
    "status/made": 1,
    "status/hosting": 1,
    "cycles": 2,
    "inventory": 2,
    "events": 1,
}
LIVE = "live"
# The trees by what stands before their parts: those with one part, and those with two.
_SHALLOW = {f"{ROOT}{tree}": tree for tree, parts in TREES.items() if parts == 1}
_DEEP = {f"{ROOT}{tree}": tree for tree, parts in TREES.items() if parts == 2}


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


def deleted_order(order_id: str) -> str:
    return f"{ROOT}status/deleted/{order_id}"


def target_status(target: str) -> str:
    return f"{ROOT}status/targets/{target}"


def scaling(policy: str) -> str:
    return f"{ROOT}status/scaling/{policy}"


def made(target: str) -> str:
    return f"{MADE}{target}"


def hosting(target: str) -> str:
    return f"{ROOT}status/hosting/{target}"


def cycle(epoch: int, n: int) -> str:
    return f"{ROOT}cycles/{epoch:020d}/{n:020d}"


def event(identity: str) -> str:
    return f"{ROOT}events/{identity}"


def live(target: str) -> str:
    return f"{ROOT}inventory/{target}/{LIVE}"


def observed(target: str, fulfilment: str) -> str:
    return f"{ROOT}inventory/{target}/{fulfilment}"


def parse(key: str) -> tuple[str, tuple[str, ...]] | None:
    """Read for every key that anybody writes, so that it does no more than it must."""
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
