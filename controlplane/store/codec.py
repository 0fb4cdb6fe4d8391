"""JSON in etcd: strict about types and about sane values, silent about unknown fields, which survive a rewrite."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, TypeVar

import msgspec

from controlplane.model import sane
from controlplane.model.errors import Broken, Invalid

S = TypeVar("S", bound=msgspec.Struct)

_UNREADABLE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)

# What is wrong with a value, and where: as msgspec says it, and as `decode` does.
_FAULT = re.compile(r"not a \w+: (.*) - at (?:`key` in )?`\$(.*)`\Z", re.DOTALL)

_encoder = msgspec.json.Encoder(order=None)
_readers: dict[type[msgspec.Struct], tuple[Callable[[bytes], Any], sane.Check | None]] = {}


def encode(value: msgspec.Struct) -> bytes:
    return _encoder.encode(value)


def decode(raw: bytes, kind: type[S]) -> S:
    """The object, or Broken when the value is not JSON of that kind, or not sane: the message names field and rule."""
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


def check(item: msgspec.Struct, path: str = "") -> bytes:
    """The object as JSON; Invalid, with field and rule, for one that no reader would take."""
    raw = encode(item)
    try:
        decode(raw, type(item))
    except Broken as error:
        field, rule = fault_of(error) or ("", str(error))
        raise Invalid(f"{path}{field}" if path else field.removeprefix("."), rule) from None
    return raw


def fault_of(error: Broken) -> tuple[str, str] | None:
    """The path of the field that is wrong in a value, and the rule that it breaks; None when it is no JSON at all."""
    said = _FAULT.search(str(error))
    return (said[2], said[1].replace("Expected", "must be")) if said is not None else None


def rewrite(raw: bytes, changed: msgspec.Struct) -> bytes:
    """The changed object as JSON, with every field of the old value that this version does not know."""
    try:
        old = msgspec.json.decode(raw)
    except _UNREADABLE:
        return encode(changed)
    known = {field.encode_name for field in msgspec.structs.fields(changed)} | {"kind"}
    kept = {key: value for key, value in old.items() if key not in known} if isinstance(old, dict) else {}
    if not kept:
        return encode(changed)
    new = msgspec.json.decode(encode(changed))
    return msgspec.json.encode({**new, **kept})
