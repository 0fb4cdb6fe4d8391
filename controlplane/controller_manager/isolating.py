"""Isolating: writes `status/isolated`, the keys that this leader leaves out, so that every replica can show them.

Written when the isolated keys change, at most every two seconds, and deleted when no key is isolated any more.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from controlplane.aio.clock import Clock
from controlplane.cache.ledgers import Ledgers, Touched
from controlplane.controller_manager.controller_writer import ControllerWriter
from controlplane.controller_manager.runner import Again
from controlplane.model.isolation import MOST_NAMED, Isolation
from controlplane.quarantine import Quarantine
from controlplane.store import codec, keys
from controlplane.store.transaction import Item, delete, mod_is, put

KEY = "isolated"
_SECONDS = 2.0


class IsolationKeeper:
    name = "isolating"
    kind = "Controller"

    def __init__(self, ledgers: Ledgers, writer: ControllerWriter, clock: Clock, quarantine: Quarantine) -> None:
        self._ledgers = ledgers
        self._writer = writer
        self._clock = clock
        self._quarantine = quarantine
        self._written = -_SECONDS

    def every_key(self) -> Iterable[str]:
        return (KEY,)

    def keys_affected_by(self, touched: Touched) -> Iterable[str]:
        return ()

    async def follow(self, ask: Callable[[str], None]) -> None:
        """Beside the runner, until cancelled: asks for a reconcile whenever the isolated keys have changed."""
        while True:
            await self._quarantine.changed.wait()
            self._quarantine.changed.clear()
            ask(KEY)

    async def reconcile(self, key: str) -> Again | None:
        now = self._clock.monotonic()
        if now < self._written + _SECONDS:
            return Again(after_seconds=self._written + _SECONDS - now)
        total = self._quarantine.total
        wanted = Isolation(epoch=self._writer.epoch, total=total, keys=self._quarantine.isolated(MOST_NAMED))
        snapshot = self._ledgers.cache.snapshot
        entry = snapshot.single(keys.ISOLATED)
        if (entry is None and not total) or snapshot.isolation() == wanted:
            return None
        self._written = now
        operation = put(keys.ISOLATED, codec.encode(wanted)) if total else delete(keys.ISOLATED)
        compare = mod_is(keys.ISOLATED, entry.revision if entry is not None else 0)
        await self._writer.write([Item(compares=(compare,), then=(operation,))])
        return None
