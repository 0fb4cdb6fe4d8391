"""JSON in etcd: strict about types, silent about unknown fields, which survive a rewrite."""

from __future__ import annotations

from typing import Any, TypeVar

import msgspec

from controlplane.model.errors import Broken

S = TypeVar("S", bound=msgspec.Struct)

_UNREADABLE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)

_encoder = msgspec.json.Encoder(order=None)
_decoders: dict[type[msgspec.Struct], msgspec.json.Decoder[Any]] = {}


def encode(value: msgspec.Struct) -> bytes:
    return _encoder.encode(value)


def decode(raw: bytes, kind: type[S]) -> S:
    """The object, or Broken when the value is not JSON of that kind."""
    decoder = _decoders.get(kind)
    if decoder is None:
        decoder = _decoders[kind] = msgspec.json.Decoder(kind)
    try:
        decoded: S = decoder.decode(raw)
    except _UNREADABLE as error:
        raise Broken(f"not a {kind.__name__}: {error}") from None
    return decoded


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
