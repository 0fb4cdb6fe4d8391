"""Past cycles run again: the cluster of a cycle from etcd's history, its inputs from its record, then the same engine.

Reads etcd and writes no key. `past_cycles` replays; `Replayed`, the result, is here, since printing a result should not
import the engine.
"""

from __future__ import annotations

import msgspec


class Replayed(msgspec.Struct, frozen=True, kw_only=True):
    """The recorded decision beside the repeated decision; `expected` and `got` are hashes of the decision."""

    cycle: int
    epoch: int
    revision: int
    engine: str
    expected: str
    got: str
    same: bool
    placed: int
    considered: int
