"""The placement hint of a task that left a target: where the next attempt goes, and where not."""

from __future__ import annotations

from typing import NamedTuple


class PlacementHint(NamedTuple):
    """Targets to avoid, the latest last; the target to go to, if a user named a target."""

    avoid: tuple[str, ...] = ()
    to: str = ""


ANYWHERE = PlacementHint()
