"""A cache that a test tells what happened, instead of etcd: for what is derived from the cache, without I/O.

`History` plays etcd's part as far as numbering goes: one revision for each write of several keys.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import cast

import msgspec

from controlplane.aio.clock import SystemClock
from controlplane.cache.ledgers import Ledgers
from controlplane.cache.reflector import Cache, Delta, Listener
from controlplane.store import codec
from controlplane.store.kv import Store
from controlplane.store.transaction import Value
from controlplane.store.watch import Change

Content = msgspec.Struct | bytes | None


class Picture(Cache):
    def __init__(self) -> None:
        super().__init__(cast(Store, None), SystemClock())

    def _tell(self, listener: Listener, deltas: Sequence[Delta]) -> None:
        """In a test, a listener that fails is the test's failure."""
        listener(deltas, self._revision)

    def tell(self, changes: Sequence[Change]) -> None:
        if changes:
            self._apply(changes, max(change.revision for change in changes))


class History:
    def __init__(self) -> None:
        self.revision = 1
        self.values: dict[str, Value] = {}

    def write(self, contents: Mapping[str, Content]) -> list[Change]:
        """All at one revision; None deletes."""
        self.revision += 1
        return [self._change(key, content) for key, content in contents.items()]

    def listing(self) -> list[Change]:
        """What a fresh replica is told: everything, at the revision of the list."""
        return [Change(key, self.revision, value) for key, value in self.values.items()]

    def _change(self, key: str, content: Content) -> Change:
        if content is None:
            self.values.pop(key, None)
            return Change(key, self.revision, None)
        raw = content if isinstance(content, bytes) else codec.encode(content)
        known = self.values.get(key)
        created = known.create_revision if known is not None else self.revision
        value = self.values[key] = Value(key, raw, created, self.revision, 0)
        return Change(key, self.revision, value)


class Told:
    """Ledgers that follow a history, each write told at once."""

    def __init__(self) -> None:
        self.history = History()
        self.picture = Picture()
        self.ledgers = Ledgers(self.picture)

    def write(self, contents: Mapping[str, Content]) -> None:
        self.picture.tell(self.history.write(contents))

    def rebuilt(self) -> Ledgers:
        """The ledgers of a replica that starts now."""
        fresh = Picture()
        ledgers = Ledgers(fresh)
        fresh.tell(self.history.listing())
        return ledgers
