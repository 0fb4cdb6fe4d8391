"""What joblets and replicas hand each other inside their messages: fulfilments and reports in JSON, as in etcd.

A replica passes on what is stored without taking it apart, and a report becomes the value that is stored: of all that
is said between the two this is the most, and turning it into messages and back cost more than all the rest. Fields
that this version does not know are stepped over.
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
    """Invalid when it is none."""
    try:
        return _fulfilments.decode(raw)
    except _UNREADABLE as error:
        raise Invalid("fulfilment", f"cannot be read: {error}") from None


def observed(raw: bytes) -> Observed:
    """Invalid when it is none, or holds what is not sane."""
    try:
        return _observeds.decode(raw)
    except _UNREADABLE as error:
        raise Invalid("observed", f"cannot be read: {error}") from None


class Receipt(msgspec.Struct, frozen=True, kw_only=True):
    """By what a report is answered, whatever else it says."""

    id: Line
    report: Count


def receipt(raw: bytes) -> Receipt | None:
    """None when there is nobody to answer."""
    try:
        return _receipts.decode(raw)
    except _UNREADABLE:
        return None


_receipts = msgspec.json.Decoder(Receipt)
