"""A key's change as the checks see it: key, revision and the stored object, decoded once for all checks.

A value that is no object of its tree (poison) has `object` None and is not deleted. Checks skip such a value where
users may write, and report a violation where only the leader may write.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

import msgspec

from controlplane.model.errors import Broken
from controlplane.store import codec, keys
from controlplane.store.transaction import Value
from controlplane.store.watch import Change

_BID = "bid-"


@dataclass(frozen=True, slots=True)
class KeyChange:
    """`created` is the key's create revision; `tree` is empty for a key of no known tree."""

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


def of_value(stored: Value) -> KeyChange:
    tree, parts = keys.parse(stored.key) or ("", ())
    decoded = _decode(tree, parts, stored.value)
    return KeyChange(
        stored.key, stored.mod_revision, tree, parts, False, stored.create_revision, stored.value, decoded
    )  # fmt: skip


def of_change(change: Change) -> KeyChange:
    if change.value is not None:
        return of_value(change.value)
    tree, parts = keys.parse(change.key) or ("", ())
    return KeyChange(change.key, change.revision, tree, parts, True)


def by_revision(changes: Iterable[Change]) -> Iterator[tuple[int, Sequence[KeyChange]]]:
    """Changes grouped by revision, in the order of a watch. The changes of a transaction share a revision."""
    for revision, together in groupby(changes, key=lambda change: change.revision):
        yield revision, [of_change(change) for change in together]


def _decode(tree: str, parts: tuple[str, ...], value: bytes) -> msgspec.Struct | None:
    if tree == keys.INVENTORY and parts[1].startswith(_BID):
        return None
    rule = keys.rule_of(tree, parts) if parts else None
    if rule is None:
        return None
    try:
        return codec.decode(value, rule.struct)
    except Broken:
        return None
