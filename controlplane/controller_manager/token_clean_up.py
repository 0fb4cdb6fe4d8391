"""Deletes enrolment tokens and credentials of joblets a week after their end, some at a time.

Such records come by themselves, one for each joblet that ever joined; tokens of people are left to people. The week is
for the clock of the leader, which may be wrong: replicas refuse an ended credential by their own clocks, and what is
deleted here cannot be renewed even after the clock was put right. The delete compares the record, so that a renewal at
the same moment wins.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta

import structlog

from controlplane.aio.clock import Clock
from controlplane.cache.ledgers import Ledgers, Touched
from controlplane.controller_manager.controller_writer import ControllerWriter
from controlplane.controller_manager.runner import Again
from controlplane.model import times
from controlplane.model.access import Token
from controlplane.store import keys
from controlplane.store.transaction import Item, delete, mod_is

KEPT = timedelta(days=7)
MOST_AT_ONCE = 100
_KEY = "tokens"
log = structlog.get_logger(__name__)


class TokenCleanUp:
    name = "token clean-up"
    kind = "Controller"

    def __init__(self, ledgers: Ledgers, writer: ControllerWriter, clock: Clock) -> None:
        self._ledgers = ledgers
        self._writer = writer
        self._clock = clock

    def every_key(self) -> Iterable[str]:
        return (_KEY,)

    def keys_affected_by(self, touched: Touched) -> Iterable[str]:
        """No change makes a token end: the regular round of the runner is often enough."""
        return ()

    async def reconcile(self, key: str) -> Again | None:
        now = self._clock.wall()
        items = []
        for entry in self._ledgers.cache.snapshot.all(keys.TOKENS):
            token = entry.readable()
            if token is not None and is_over(token, now):
                items.append(Item((mod_is(entry.stored.key, entry.revision),), (delete(entry.stored.key),)))
                if len(items) == MOST_AT_ONCE:
                    break
        if not items:
            return None
        log.info("deleting enrolments and credentials of joblets that ended", count=len(items))
        await self._writer.write(items)
        return Again(after_seconds=1.0) if len(items) == MOST_AT_ONCE else None


def is_over(token: Token, now: datetime) -> bool:
    """Whether the token came of an enrolment and ended long ago."""
    if not (token.is_enrolment or token.enrolled) or not token.expires:
        return False
    return times.parse(token.expires, "expires") + KEPT < now
