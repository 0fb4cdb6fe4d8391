"""Deletes whole prefixes, which no part of the product does."""

from __future__ import annotations

from controlplane.store import encoding
from controlplane.store.keys import after_prefix
from controlplane.store.transaction import Operation


def delete_prefix(prefix: str) -> Operation:
    name = prefix.encode()
    return Operation(encoding.delete(name, after_prefix(prefix)), name, True)
