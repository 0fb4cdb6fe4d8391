"""The payload between joblets and replicas inside their messages: fulfilments and reports in JSON, as in etcd.

A replica passes on stored values without decoding them, and a report becomes the stored value. Payload is the largest
part of the traffic, and converting payload to messages and back cost more than all the rest. Unknown fields are stepped
over.
"""

from __future__ import annotations

import msgspec

from controlplane.model.bounds import Count, Line
from controlplane.model.errors import Invalid
from controlplane.model.fulfilment import Fulfilment, Observed

_encoder = msgspec.json.Encoder()
_fulfilments = msgspec.json.Decoder(Fulfilment)
_observeds = msgspec.json.Decoder(Observed)
_UNREADABLE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)


def encode(item: Fulfilment | Observed) -> bytes:
    return _encoder.encode(item)


def fulfilment(raw: bytes) -> Fulfilment:
    """Invalid for any other bytes."""
    try:
        return _fulfilments.decode(raw)
    except _UNREADABLE as error:
        raise Invalid("fulfilment", f"cannot be read: {error}") from None


def observed(raw: bytes) -> Observed:
    """Invalid for any other bytes, and for insane values."""
    try:
        return _observeds.decode(raw)
    except _UNREADABLE as error:
        raise Invalid("observed", f"cannot be read: {error}") from None


class Receipt(msgspec.Struct, frozen=True, kw_only=True):
    """The part of a report needed for its answer."""

    id: Line
    report: Count


def receipt(raw: bytes) -> Receipt | None:
    """None when the bytes name no report to answer."""
    try:
        return _receipts.decode(raw)
    except _UNREADABLE:
        return None


_receipts = msgspec.json.Decoder(Receipt)
