"""A catalogue for tests of admission: the named objects and the settings that a test says exist."""

from __future__ import annotations

from typing import TypeVar

from controlplane.model.object import Named
from controlplane.model.settings import Settings

N = TypeVar("N", bound=Named)


class Known:
    revision = None

    def __init__(self, *objects: Named, chosen: Settings | None = None) -> None:
        self._objects = {(type(item), item.name): item for item in objects}
        self._settings = chosen or Settings()

    def find(self, kind: type[N], name: str) -> N | None:
        found = self._objects.get((kind, name))
        return found if isinstance(found, kind) else None

    def settings(self) -> Settings:
        return self._settings
