"""From documents of people (plain dicts of YAML or JSON) to model structs, strictly.

Every refusal is an Invalid that names the field by its path and the broken rule. Unknown fields are refused here;
quantities and durations with suffixes become numbers here. Checks against the state of the cluster (unknown names,
limits, defaults) are the business of admission, not of this module.
"""

from __future__ import annotations

import types
import typing
from collections.abc import Mapping
from functools import cache
from typing import Any

import msgspec

from controlplane.model import quantity
from controlplane.model.errors import Invalid
from controlplane.model.job import Job
from controlplane.model.kinds import WRITTEN
from controlplane.model.order import OrderRequest
from controlplane.model.packet import Packet
from controlplane.model.resource import Resource
from controlplane.model.rule import Rule
from controlplane.model.scalepolicy import ScalePolicy
from controlplane.model.secret import SecretWish
from controlplane.model.settings import Settings
from controlplane.model.target import Target

Manifest = Job | Packet | Resource | Target | Rule | ScalePolicy | SecretWish | OrderRequest | Settings

_MAX_DEPTH = 12
# Numbers that may be negative.
_SIGNED = frozenset({"prefer"})
_QUANTITY_MAPS = frozenset({"requests", "capacity", "default_requests", "quantities"})
_DURATIONS = frozenset(
    {
        "time_limit", "backoff", "deadline", "cool_down", "idle",
        "clean_up", "target_grace", "joblet_lease", "heartbeat", "kill_grace",
        "failure_memory", "backoff_cap", "default_time_limit", "history", "target_suspect", "drain_timeout",
        "stop_grace", "seconds",
    }
)  # fmt: skip
_WRITTEN_BY_THE_SYSTEM = frozenset({"created"})


def read(document: object) -> Manifest:
    """A document to an object of its `kind`; fields that only the system writes are refused."""
    if not isinstance(document, Mapping):
        raise Invalid("document", f"must be a mapping with a kind, not {_name_of(document)}")
    kind = document.get("kind")
    if not isinstance(kind, str) or kind not in WRITTEN:
        raise Invalid("kind", f"must be one of {', '.join(WRITTEN)}, not {kind!r}")
    return typing.cast(Manifest, _struct(document, WRITTEN[kind], "", 0))


def _struct(value: object, struct: type[msgspec.Struct], path: str, depth: int) -> msgspec.Struct:
    if not isinstance(value, Mapping):
        raise Invalid(path or "document", f"must be a mapping, not {_name_of(value)}")
    if depth > _MAX_DEPTH:
        raise Invalid(path, f"must not be nested deeper than {_MAX_DEPTH} levels")
    fields = _fields(struct)
    tag = struct.__struct_config__.tag
    arguments: dict[str, Any] = {}
    for key, item in value.items():
        here = f"{path}.{key}" if path else str(key)
        if key == "kind" and tag is not None:
            if item != tag:
                raise Invalid(here, f"must be {tag} here, not {item!r}")
            continue
        if not isinstance(key, str) or key not in fields or key in _WRITTEN_BY_THE_SYSTEM:
            raise Invalid(here, f"is not a field of {tag or struct.__name__}")
        attribute, kind = fields[key]
        if item is not None:
            duration = key in _DURATIONS
            arguments[attribute] = (
                quantity.parse_duration(item, here) if duration else _value(item, kind, here, depth + 1)
            )
    return struct(**arguments)


@cache
def _fields(struct: type[msgspec.Struct]) -> dict[str, tuple[str, Any]]:
    hints = typing.get_type_hints(struct)
    return {field.encode_name: (field.name, hints[field.name]) for field in msgspec.structs.fields(struct)}


def _value(value: object, kind: Any, path: str, depth: int) -> object:
    origin = typing.get_origin(kind)
    if origin in (types.UnionType, typing.Union):
        return _union(value, [part for part in typing.get_args(kind) if part is not types.NoneType], path, depth)
    if origin is tuple:
        if not isinstance(value, list | tuple):
            raise Invalid(path, f"must be a list, not {_name_of(value)}")
        inner = typing.get_args(kind)[0]
        return tuple(_value(item, inner, f"{path}[{at}]", depth + 1) for at, item in enumerate(value))
    if origin is dict:
        return _mapping(value, typing.get_args(kind)[1], path, depth)
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        return _struct(value, kind, path, depth)
    return _scalar(value, kind, path)


def _union(value: object, kinds: list[Any], path: str, depth: int) -> object:
    if set(kinds) == {int, float}:
        signed = path.rsplit(".", 1)[-1] in _SIGNED
        return quantity.parse_signed(value, path) if signed else quantity.parse(value, path)
    structs = [kind for kind in kinds if isinstance(kind, type) and issubclass(kind, msgspec.Struct)]
    if structs and isinstance(value, Mapping):
        return _struct(value, structs[0], path, depth)
    if structs and not isinstance(value, str):
        raise Invalid(path, f"must be a name or the object itself, not {_name_of(value)}")
    plain = [kind for kind in kinds if kind not in structs]
    return _value(value, plain[0] if plain else structs[0], path, depth)


def _mapping(value: object, inner: Any, path: str, depth: int) -> dict[str, object]:
    if not isinstance(value, Mapping):
        raise Invalid(path, f"must be a mapping, not {_name_of(value)}")
    quantities = path.rsplit(".", 1)[-1] in _QUANTITY_MAPS
    result: dict[str, object] = {}
    for key, item in value.items():
        if not isinstance(key, str):
            raise Invalid(f"{path}.{key}", f"must have a text key, not {_name_of(key)}")
        here = f"{path}.{key}"
        result[key] = quantity.parse(item, here) if quantities else _value(item, inner, here, depth + 1)
    return result


def _scalar(value: object, kind: Any, path: str) -> object:
    if kind is str:
        if isinstance(value, str):
            return value
        raise Invalid(path, f"must be text, not {_name_of(value)} (put it in quotes)")
    if kind is bool:
        if isinstance(value, bool):
            return value
        raise Invalid(path, f"must be true or false, not {value!r}")
    if kind is int:
        if isinstance(value, int) and not isinstance(value, bool):
            return value
        raise Invalid(path, f"must be a whole number, not {value!r}")
    raise Invalid(path, f"cannot be written as {_name_of(value)}")


def _name_of(value: object) -> str:
    names = {dict: "a mapping", list: "a list", str: "text", bool: "true or false", type(None): "nothing"}
    return names.get(type(value), "a number" if isinstance(value, int | float) else type(value).__name__)
