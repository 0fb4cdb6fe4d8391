"""Objects as clients send them. What the system writes itself cannot be sent with an order."""

from __future__ import annotations

import threading
from typing import Any

import msgspec

from controlplane.apiserver.applying import Wish
from controlplane.model.errors import Invalid
from controlplane.model.manifest import KINDS
from controlplane.model.order import OrderRequest
from controlplane.wire import convert

_SENT = frozenset(field.encode_name for field in msgspec.structs.fields(OrderRequest))
_KINDS: dict[str, Any] = {name.lower(): kind for name, kind in KINDS.items()}


# Requests that differ in their identity only are read once.
_MOST_KEPT = 256
_MOST_BYTES = 4096
_ID_BYTES = 26
_kept: dict[bytes, OrderRequest] = {}
# Large batches are read in threads.
_keeping = threading.Lock()


def order_request(message: Any, path: str = "") -> OrderRequest:
    identity = message.id
    raw = message.SerializeToString()
    # The identity is the first field, behind its tag and its length; all else is the content.
    front = b"\x0a\x1a" + identity.encode()
    if len(front) != _ID_BYTES + 2 or not raw.startswith(front):
        return _read(message, path)
    content = raw[len(front) :]
    known = _kept.get(content)
    if known is not None:
        return msgspec.structs.replace(known, id=identity)
    found = _read(message, path)
    if len(content) <= _MOST_BYTES:
        with _keeping:
            if len(_kept) >= _MOST_KEPT:
                _kept.pop(next(iter(_kept)))
            _kept[content] = found
    return found


def _read(message: Any, path: str) -> OrderRequest:
    for field, _ in message.ListFields():
        if field.name not in _SENT:
            raise Invalid(f"{path}{field.name}", "is written by the system and cannot be submitted")
    return convert.to_model(message, OrderRequest)


def wish_in(message: Any, path: str) -> tuple[Wish, int]:
    """What one object of an apply asks for, and the revision that its writer read."""
    which = message.WhichOneof("object")
    if which is None:
        raise Invalid(path, "must hold an object")
    found = getattr(message, which)
    if which == "order":
        return order_request(found, f"{path}."), 0
    wish: Wish = convert.to_model(found, _KINDS[which])
    return wish, found.revision
