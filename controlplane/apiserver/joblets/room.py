"""How much room a target has, when that changes while its joblet is connected: kept in its live record.

Written only when it is another; what could not be stored is stored when the joblet says hello the next time, or when
it changes again. What is no quantity, or too much of them, changes nothing.
"""

from __future__ import annotations

from collections.abc import Mapping

import structlog
from msgspec.structs import replace

from controlplane.apiserver.dependencies import ApiDependencies
from controlplane.apiserver.joblets.session import Session, sound_capacity
from controlplane.model.errors import ControlPlaneError, Invalid
from controlplane.model.quantity import Number
from controlplane.model.target import Live
from controlplane.store import codec, keys, places, transaction
from controlplane.store.transaction import Item

log = structlog.get_logger(__name__)

_TRIES = 5


class Room:
    def __init__(self, deps: ApiDependencies, session: Session) -> None:
        self._deps = deps
        self._session = session
        self._told: dict[str, Number] = {}
        self._writing = False

    def hear(self, told: Mapping[str, float]) -> bool:
        """Whether it has to be stored, and nobody does so yet."""
        try:
            self._told = sound_capacity(told)
        except Invalid as error:
            log.warning("a joblet says what cannot be its room", target=self._session.target, error=str(error))
            return False
        if self._writing:
            return False
        # From now on, not from when the write begins: what is heard until then would begin one more.
        self._writing = True
        return True

    async def store(self) -> None:
        """One write at a time; what is heard meanwhile is stored by the next one."""
        try:
            told = None
            tries = 0
            while told != self._told and tries < _TRIES:
                tries += 1
                wanted = self._told
                if await self._write(wanted):
                    told, tries = wanted, 0
        except ControlPlaneError as error:
            log.info("a target's room could not be stored", target=self._session.target, error=str(error))
        finally:
            self._writing = False

    async def _write(self, told: dict[str, Number]) -> bool:
        """On what is there now, since other things are kept in the same record; never for another session.

        False when somebody else changed the record meanwhile.
        """
        key = keys.live(self._session.target)
        stored = await self._deps.store.get(key)
        if stored is None or stored.lease != self._session.lease:
            return True
        live = places.read(stored, Live)
        if live.capacity == told:
            return True
        unchanged = transaction.mod_is(key, stored.mod_revision)
        put = transaction.put(key, codec.rewrite(stored.value, replace(live, capacity=told)), lease=stored.lease)
        outcome = await self._deps.writer.write(Item((self._session.holds, unchanged), (put,)))
        return outcome.succeeded
