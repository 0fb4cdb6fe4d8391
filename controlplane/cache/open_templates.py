"""The number of recurring orders of each owner that are neither final nor gone."""

from __future__ import annotations

from collections import Counter


class OpenTemplates:
    def __init__(self) -> None:
        self._owners: dict[str, str] = {}
        self._count: Counter[str] = Counter()

    def set(self, identity: str, owner: str | None) -> None:
        """None: the recurring order is final or gone."""
        before = self._owners.pop(identity, None)
        if before is not None:
            self._count[before] -= 1
            if not self._count[before]:
                del self._count[before]
        if owner is not None:
            self._owners[identity] = owner
            self._count[owner] += 1

    def of(self, owner: str) -> int:
        return self._count[owner]

    def total(self) -> int:
        return len(self._owners)
