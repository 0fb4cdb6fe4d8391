"""JSON in etcd: strict about types and sane values, tolerant of unknown fields, which survive a rewrite."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, TypeVar

import msgspec

from controlplane.model import sane
from controlplane.model.errors import Broken, Invalid
from controlplane.store import keys
from controlplane.store.transaction import Value

S = TypeVar("S", bound=msgspec.Struct)

_UNREADABLE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)

# The texts of msgspec and of `decode` for a wrong value: rule and path.
_FAULT = re.compile(r"not a \w+: (.*) - at (?:`key` in )?`\$(.*)`\Z", re.DOTALL)

_encoder = msgspec.json.Encoder(order=None)
_readers: dict[type[msgspec.Struct], tuple[Callable[[bytes], Any], sane.Check | None]] = {}


def encode(value: msgspec.Struct) -> bytes:
    return _encoder.encode(value)


def decode(raw: bytes, kind: type[S]) -> S:
    """The object; Broken, with field and rule, when the value is not JSON of the kind or holds insane values."""
    reader = _readers.get(kind)
    if reader is None:
        reader = _readers[kind] = (msgspec.json.Decoder(kind).decode, sane.check_of(kind))
    read, check = reader
    try:
        decoded: S = read(raw)
    except _UNREADABLE as error:
        raise Broken(f"not a {kind.__name__}: {error}") from None
    insane = check(decoded) if check is not None else None
    if insane is not None:
        raise Broken(f"not a {kind.__name__}: {insane.rule} - at `${insane.path}`")
    return decoded


def read(stored: Value, kind: type[S]) -> S:
    """The object under its key; Broken when the value is not sane, or belongs under another key."""
    tree, parts = keys.parse(stored.key) or ("", ())
    rule = keys.rule_of(tree, parts) if parts else None
    item = decode(stored.value, kind)
    if rule is not None and rule.struct is kind:
        check_place(item, tree, parts, rule)
    return item


def check_place(item: msgspec.Struct, tree: str, parts: keys.Parts, rule: keys.KeyRule) -> None:
    """Broken for an object that belongs under another key: acting on such an object would hit another object."""
    own = rule.parts_of(item) if rule.parts_of is not None else parts
    if own != parts:
        raise Broken(f"not a {type(item).__name__} of this key: it belongs under {'/'.join((tree, *own))[:256]}")


def check(item: msgspec.Struct, path: str = "") -> bytes:
    """The object as JSON; Invalid, with field and rule, for an object that no reader would accept."""
    raw = encode(item)
    try:
        decode(raw, type(item))
    except Broken as error:
        field, rule = fault_of(error) or ("", str(error))
        raise Invalid(f"{path}{field}" if path else field.removeprefix("."), rule) from None
    return raw


def fault_of(error: Broken) -> tuple[str, str] | None:
    """The path of the wrong field and the broken rule; None when the value is no JSON."""
    said = _FAULT.search(str(error))
    return (said[2], said[1].replace("Expected", "must be")) if said is not None else None


def rewrite(raw: bytes, changed: msgspec.Struct) -> bytes:
    """The changed object as JSON, with all fields of the old value that are unknown to this version."""
    try:
        old = msgspec.json.decode(raw)
    except _UNREADABLE:
        return encode(changed)
    own = {field.encode_name for field in msgspec.structs.fields(changed)} | {"kind"}
    kept = {key: value for key, value in old.items() if key not in own} if isinstance(old, dict) else {}
    if not kept:
        return encode(changed)
    new = msgspec.json.decode(encode(changed))
    return msgspec.json.encode({**new, **kept})
