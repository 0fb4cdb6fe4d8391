"""What came of running a past cycle again."""

from __future__ import annotations

import msgspec


class Replayed(msgspec.Struct, frozen=True, kw_only=True):
    """What was decided then and what is decided now; `expected` and `got` are hashes of the decision."""

    cycle: int
    epoch: int
    revision: int
    engine: str
    expected: str
    got: str
    same: bool
    placed: int
    considered: int
