"""How much of a target's old work still dies, kept in its live record.

A target that comes back gets nothing new before that is zero. Written only when it changes; what was not stored is
stored with the next heartbeat that says it.
"""

from __future__ import annotations

import structlog
from msgspec.structs import replace

from controlplane.apiserver.dependencies import ApiDependencies
from controlplane.apiserver.joblets.session import Session
from controlplane.model.errors import ControlPlaneError
from controlplane.model.target import Live
from controlplane.store import codec, keys, places, transaction
from controlplane.store.transaction import Item

log = structlog.get_logger(__name__)


class Leftovers:
    def __init__(self, deps: ApiDependencies, session: Session) -> None:
        self._deps = deps
        self._session = session
        self._told = 0
        self._writing = False

    def hear(self, told: int) -> bool:
        """Whether it has to be stored: the record says something else, as far as this replica knows."""
        self._told = told
        entry = self._deps.cache.snapshot.get("inventory", self._session.target, keys.LIVE)
        live = entry.sound(Live) if entry is not None else None
        if self._writing or live is None or live.leftovers == told:
            return False
        # From now on, not from when the write begins: what is heard until then would begin one more.
        self._writing = True
        return True

    async def store(self) -> None:
        """One write at a time; what is heard meanwhile is stored by the next one."""
        try:
            told = None
            while told != self._told:
                told = self._told
                await self._write(told)
        except ControlPlaneError as error:
            log.debug("what is left over could not be stored", target=self._session.target, error=str(error))
        finally:
            self._writing = False

    async def _write(self, told: int) -> None:
        """On what is there now, since other things are kept in the same record; never for another session."""
        key = keys.live(self._session.target)
        stored = await self._deps.store.get(key)
        if stored is None or stored.lease != self._session.lease:
            return
        live = places.read(stored, Live)
        if live.leftovers == told:
            return
        unchanged = transaction.mod_is(key, stored.mod_revision)
        put = transaction.put(key, codec.rewrite(stored.value, replace(live, leftovers=told)), lease=stored.lease)
        await self._deps.writer.write(Item((self._session.holds, unchanged), (put,)))
