"""What the apiserver of a replica works with: built once by the composition root, handed to every service.

`Writer` and `Election` are the two ports that others fill: a writer commits what clients send, many at a time; an
election tells who leads and can be asked to let go. `record` keeps what a person may ask about later, and never waits.
`logs` is where the streams of joblets and the readers of logs meet; `offload` has the threads for large requests.
Nothing here does anything.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from controlplane.aio.clock import Clock
from controlplane.apiserver.logs.desk import Desk
from controlplane.apiserver.offload import Offload
from controlplane.cache.ledgers import Ledgers
from controlplane.cache.reflector import Cache
from controlplane.model.errors import ControlPlaneError
from controlplane.model.event import Record, ignore
from controlplane.model.identity import Mint
from controlplane.model.leadership import Term
from controlplane.quarantine import Quarantine
from controlplane.sealing import NO_KEYS, Keyring
from controlplane.store.kv import Store
from controlplane.store.lease import Renewals
from controlplane.store.space import SpaceWatch
from controlplane.store.transaction import Item, Outcome


class Writer(Protocol):
    async def write(self, item: Item) -> Outcome:
        """Commits the item, together with those of others. Its errors are those of `Store.commit`."""
        ...

    async def write_all(self, items: Sequence[Item]) -> list[Outcome | ControlPlaneError]:
        """Commits items that need not stay together; each gets its own outcome or error."""
        ...


class Election(Protocol):
    def leader(self) -> Term | None:
        """The term under way as this replica knows it; None while nobody leads."""
        ...

    async def step_down(self) -> int:
        """Ends this replica's own term and returns its epoch; Refused when this replica does not lead."""
        ...

    def clocks_off(self) -> Mapping[str, float]:
        """Replicas whose wall clock is off, by id, and by how many seconds."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiDependencies:
    store: Store
    cache: Cache
    ledgers: Ledgers
    writer: Writer
    renewals: Renewals
    election: Election
    mint: Mint
    clock: Clock
    replica_id: str
    version: str
    incarnation: str
    space: SpaceWatch
    record: Record = ignore
    quarantine: Quarantine | None = None
    keyring: Keyring = NO_KEYS
    logs: Desk = field(default_factory=Desk)
    offload: Offload = field(default_factory=Offload)
