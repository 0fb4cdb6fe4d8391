"""One key's change as the checks see it: where it is, at which revision, and what was written, decoded once for all.

A value that is no object of its tree has `object` None and is not deleted: checks step over it where poison is allowed
to exist, and call it a violation where only the leader may write.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

import msgspec

from controlplane.model.errors import Broken
from controlplane.store import codec, keys, places
from controlplane.store.transaction import Value
from controlplane.store.watch import Change

_BID = "bid-"


@dataclass(frozen=True, slots=True)
class Event:
    """`created` says that the key was not there before; `tree` is empty for a key of no known tree."""

    key: str
    revision: int
    tree: str
    parts: tuple[str, ...]
    deleted: bool
    created: int = 0
    value: bytes = b""
    object: msgspec.Struct | None = None

    @property
    def is_new(self) -> bool:
        return self.created == self.revision


def of_value(stored: Value) -> Event:
    tree, parts = keys.parse(stored.key) or ("", ())
    decoded = _decode(tree, parts, stored.value)
    return Event(
        stored.key, stored.mod_revision, tree, parts, False, stored.create_revision, stored.value, decoded
    )  # fmt: skip


def of_change(change: Change) -> Event:
    if change.value is not None:
        return of_value(change.value)
    tree, parts = keys.parse(change.key) or ("", ())
    return Event(change.key, change.revision, tree, parts, True)


def by_revision(changes: Iterable[Change]) -> Iterator[tuple[int, Sequence[Event]]]:
    """Whole revisions, as a watch delivers them. A transaction's changes are one revision."""
    for revision, together in groupby(changes, key=lambda change: change.revision):
        yield revision, [of_change(change) for change in together]


def _decode(tree: str, parts: tuple[str, ...], value: bytes) -> msgspec.Struct | None:
    if tree == "inventory" and parts[1].startswith(_BID):
        return None
    rule = places.rule_of(tree, parts) if parts else None
    if rule is None:
        return None
    try:
        return codec.decode(value, rule.kind)
    except Broken:
        return None
