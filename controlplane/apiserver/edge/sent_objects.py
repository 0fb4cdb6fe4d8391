"""Messages of the wire -> objects as clients send them. Fields of the system cannot be sent with an order."""

from __future__ import annotations

from typing import Any

import msgspec

from controlplane.aio.lru import Lru
from controlplane.apiserver.commands.apply import Wish
from controlplane.model.access import Subject
from controlplane.model.errors import Invalid
from controlplane.model.kinds import WRITTEN
from controlplane.model.order import OrderRequest
from controlplane.wire import convert
from controlplane.wire.v1 import cluster_pb2, orders_pb2

_SENT = frozenset(field.encode_name for field in msgspec.structs.fields(OrderRequest))
_KINDS: dict[str, Any] = {name.lower(): kind for name, kind in WRITTEN.items()}

# Requests of one subject that differ in their identity only are read once.
_MOST_KEPT = 256
_MOST_BYTES = 4096
_ID_BYTES = 26
_kept: Lru[tuple[Subject, bytes], OrderRequest] = Lru(_MOST_KEPT)


def order_request(subject: Subject, message: orders_pb2.Order, path: str = "") -> OrderRequest:
    identity = message.id
    raw = message.SerializeToString()
    # The identity is the first field, behind its tag and its length; all else is the content.
    front = b"\x0a\x1a" + identity.encode()
    if len(front) != _ID_BYTES + 2 or not raw.startswith(front):
        return _read(message, path)
    key = subject, raw[len(front) :]
    kept = _kept.get(key)
    if kept is not None:
        return msgspec.structs.replace(kept, id=identity)
    request = _read(message, path)
    if len(key[1]) <= _MOST_BYTES:
        _kept.put(key, request)
    return request


def _read(message: orders_pb2.Order, path: str) -> OrderRequest:
    for field, _ in message.ListFields():
        if field.name not in _SENT:
            raise Invalid(f"{path}{field.name}", "is written by the system and cannot be submitted")
    return convert.to_model(message, OrderRequest)


def wish_in(subject: Subject, message: cluster_pb2.Object, path: str) -> tuple[Wish, int]:
    """The wish of one object of an apply, and the revision which the user read."""
    which = message.WhichOneof("object")
    if which is None:
        raise Invalid(path, "must hold an object")
    if which == "order":
        return order_request(subject, message.order, f"{path}."), 0
    sent = getattr(message, which)
    wish: Wish = convert.to_model(sent, _KINDS[which])
    return wish, sent.revision
