"""Detour: how the next attempt of a task that left a target differs from any other's."""

from __future__ import annotations

from typing import NamedTuple


class Detour(NamedTuple):
    """Targets that it avoids, the latest last; the one target where it goes, if a user said so."""

    avoid: tuple[str, ...] = ()
    to: str = ""


STRAIGHT = Detour()
