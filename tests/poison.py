"""Poison that is well formed: for every struct of every tree, every field, in every struct inside of it, at extremes.

Made from the types alone, so that a new tree, struct or field is poisoned without anybody adding it here: a tree that
`store/keys` does not know fails a test. Each value is JSON of the right types; whether it is sane is what is tested.
"""

from __future__ import annotations

import copy
import itertools
import types
import typing
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any

import msgspec

from controlplane.model.identity import Mint
from controlplane.model.order import Order, Resolved
from controlplane.model.target import Live
from controlplane.store import keys
from tests.builders import NOW

TARGET, ORDER = "t1", "01KDVDNA00000000000000000Z"
_mint = Mint(lambda: 1_767_225_700_000, bytes)
_numbers = itertools.count(1)
# The trees whose values all have one struct.
TREES = tuple(tree for tree in keys.TREES if tree.struct is not msgspec.Struct)

NUMBERS: tuple[Any, ...] = (-1, 0, 10**30, -(10**30), 2**31, 2**63, 2**53, 1e300, -1e300, 1e-310)
TEXTS: tuple[Any, ...] = (
    "",
    "garbage",
    "..",
    "../../../elsewhere",
    "x" * 40_000,
    "0001-01-01T00:00:00.000Z",
    "9999-12-31T23:59:59.999Z",
    "2199-12-31T23:59:59.999Z",
    "strict:..",
    "* * * * * *",
    "\u0000\u202e",
)


@dataclass(frozen=True)
class Poison:
    """`name` says where and how."""

    name: str
    key: str
    value: bytes


def everything() -> Iterator[tuple[str, list[Poison]]]:
    """The poison of each field, by the field's name."""
    for tree in TREES:
        yield from _of_tree(tree, tree.struct)
    yield from _of_tree(keys.INVENTORY, Live)
    for single in keys.SINGLES:
        yield from _of_tree(single.name, single.struct)
    # What an order resolved to is a document of its own inside of it.
    for path in _paths(a_sample(Resolved)):
        found = []
        for worst in _extremes(_at(a_sample(Resolved), path)):
            order = a_sample(Order)
            _put(order["resolved"], path, worst)
            found.append(_standing("config/orders", order, f"resolved.{_shown(path)} = {worst!r:.40}"))
        yield f"Resolved.{_shown(path)}", found


def _of_tree(tree: str, kind: type[msgspec.Struct]) -> Iterator[tuple[str, list[Poison]]]:
    for path in _paths(a_sample(kind)):
        found = []
        for worst in _extremes(_at(a_sample(kind), path)):
            item = a_sample(kind)
            place = _standing(tree, item, f"{_shown(path)} = {worst!r:.40}")
            _put(item, path, worst)
            found.append(Poison(place.name, place.key, msgspec.json.encode(item)))
        yield f"{kind.__name__}.{_shown(path)}", found


def _standing(tree: str, item: dict[str, Any], name: str) -> Poison:
    """Under the key that the sane sample has."""
    parts = {
        "election": (f"7fffffffffff{next(_numbers):04x}",),
        "terms": (f"{item.get('epoch', 0):020d}",),
        "cycles": (f"{item.get('epoch', 0):020d}", f"{item.get('n', 0):020d}"),
        "desired": (item.get("target"), item.get("id")),
        "inventory": (item.get("target"), keys.LIVE if item["kind"] == "Live" else item.get("id")),
        "status/ended": (item.get("order"), item.get("id")),
        "claims": (item.get("resource"),),
        "status/orders": (item.get("order"),),
        "status/scaling": (item.get("policy"),),
        "status/targets": (item.get("target"),),
        "status/made": (item.get("target"),),
        "status/hosting": (item.get("target"),),
        "status/preemptions": (item.get("target"), item.get("fulfilment")),
        "config/orders": (item.get("id"),),
        "events": (item.get("id"),),
    }.get(tree, (item["name"],) if tree.startswith("config/") and "name" in item else ())
    return Poison(f"{tree}: {name}", "/".join((keys.ROOT + tree, *map(str, parts))), msgspec.json.encode(item))


def a_sample(kind: type[msgspec.Struct]) -> dict[str, Any]:
    """A sane object with every field said and one item in every list, as plain JSON."""
    sample: dict[str, Any] = {}
    if kind.__struct_config__.tag is not None:
        sample["kind"] = kind.__struct_config__.tag
    for name, hint in _hints(kind).items():
        sample[name] = _value(hint, name, kind)
    return sample


@cache
def _hints(kind: type[msgspec.Struct]) -> dict[str, Any]:
    hints = typing.get_type_hints(kind, include_extras=True)
    return {field.encode_name: hints[field.name] for field in msgspec.structs.fields(kind)}


def _value(hint: Any, name: str, kind: type[msgspec.Struct]) -> Any:
    if name in _KNOWN:
        return copy.deepcopy(_KNOWN[name](kind.__name__))
    origin, parts = typing.get_origin(hint), typing.get_args(hint)
    if origin is typing.Annotated:
        rule = next((meta.extra["rule"] for meta in parts[1:] if meta.extra), "")
        if "time" in rule:
            return NOW
        least = next((meta.ge if meta.ge is not None else meta.gt for meta in parts[1:]), None)
        return max(1, least) if parts[0] in (int, float) and least is not None else _value(parts[0], name, kind)
    if origin in (types.UnionType, typing.Union):
        return _value(next(part for part in parts if part is not types.NoneType), name, kind)
    if origin is tuple:
        return [_value(parts[0], name, kind)]
    if origin is dict:
        return {"cpu": _value(parts[1], name, kind)}
    if isinstance(hint, type) and issubclass(hint, msgspec.Struct):
        return a_sample(hint)
    return {str: "x", bool: False, int: 1, float: 1.0}.get(hint, "x")


def _fresh(prefix: str) -> str:
    return f"{prefix}-{next(_numbers)}"


# What only a few values fit, by the field's name: so that the sample is sane, and somebody looks at it.
_KNOWN: dict[str, Any] = {
    "id": lambda kind: _mint.make(),
    "name": lambda kind: "job-0" if kind == "Job" else _fresh("poison"),
    "resource": lambda kind: _fresh("poison"),
    "policy": lambda kind: _fresh("poison") if kind in ("Scaling", "Made") else "x",
    "target": lambda kind: TARGET if kind in ("Fulfilment", "Observed", "Ended", "Claim") else _fresh("poison"),
    "order": lambda kind: _mint.make() if kind == "OrderStatus" else ORDER,
    "epoch": lambda kind: next(_numbers) if kind in ("Term", "Cycle") else 1,
    "resolved": lambda kind: a_sample(Resolved),
    "schedule": lambda kind: None,
    "job": lambda kind: a_sample(_job()) if kind in ("ResolvedJob", "PacketJob") else "job-0",
    "after": lambda kind: [],
    "target_policy": lambda kind: "any",
    "orchestration": lambda kind: "push",
    "drivers": lambda kind: ["process"],
    "driver": lambda kind: "process",
    "constraints": lambda kind: None,
    "affinity": lambda kind: [],
    "resources": lambda kind: [],
    "holds": lambda kind: [],
    "cancel_tasks": lambda kind: [],
    "phase": lambda kind: {"OrderStatus": "Running", "TargetStatus": "Ready"}.get(kind, "Running"),
    "want": lambda kind: "run",
    "provider": lambda kind: "local",
    "metric": lambda kind: "queue",
    "placement": lambda kind: "balance",
    "cron": lambda kind: "0 3 * * *",
    "tz": lambda kind: "UTC",
    "missed": lambda kind: "last",
    "overlap": lambda kind: "allow",
    "from": lambda kind: "08:00",
    "to": lambda kind: "18:00" if kind == "Window" else "",
    "days": lambda kind: [],
    "when": lambda kind: "task.cpu > 1000.0",
    "joblet_lease": lambda kind: 6,
    "index": lambda kind: 0,
    "gang": lambda kind: False,
    "pack": lambda kind: 1,
    "not_before": lambda kind: NOW,
}


def _job() -> type[msgspec.Struct]:
    return keys.JOBS.struct


def _paths(value: Any, front: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The way to every value inside, lists and objects among them."""
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in inner:
        if (front, key) not in (((), "kind"), ((), "resolved")):
            yield (*front, key)
            yield from _paths(item, (*front, key))


def _at(value: Any, path: tuple[Any, ...]) -> Any:
    for key in path:
        value = value[key]
    return value


def _put(value: Any, path: tuple[Any, ...], worst: Any) -> None:
    _at(value, path[:-1])[path[-1]] = worst


def _shown(path: tuple[Any, ...]) -> str:
    return ".".join(map(str, path))


def _extremes(sane: Any) -> tuple[Any, ...]:
    if isinstance(sane, bool):
        return (not sane,)
    if isinstance(sane, int | float):
        return NUMBERS
    if isinstance(sane, str):
        return TEXTS
    if isinstance(sane, list):
        return ([], sane * 200 if sane else [], None)
    if isinstance(sane, dict):
        return ({}, {"": 1}, {"x" * 1000: 1e-310, "cpu": -1}, None)
    # Not said in the sample: as many types as there may be.
    return (0, -1, "", "garbage", [], {}, _SCHEDULE)


_SCHEDULE = {"cron": "* * * * * *", "until": "9999-12-31T23:59:59Z", "limit": -1}
