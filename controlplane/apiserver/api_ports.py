"""The ports of the apiserver, for its commands and queries. A function names the ports it needs.

The composition root of a replica fills the ports once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from controlplane.aio.clock import Clock, chance
from controlplane.apiserver.credential_verifier import CredentialVerifier
from controlplane.cache.ledgers import Ledgers
from controlplane.cache.reflector import Cache
from controlplane.cluster_key import ClusterKey
from controlplane.model.errors import ControlPlaneError
from controlplane.model.event import Record, ignore
from controlplane.model.identity import Mint
from controlplane.model.leadership import Term
from controlplane.quarantine import Quarantine
from controlplane.sealing import NO_KEYS, Keyring
from controlplane.store.kv import Store
from controlplane.store.lease import Renewals
from controlplane.store.space_watch import SpaceWatch
from controlplane.store.transaction import Item, Outcome
from controlplane.tls_files import TlsSource


class Writer(Protocol):
    async def write(self, item: Item) -> Outcome:
        """Commits the item, together with items of other clients. Errors are those of `Store.commit`."""
        ...

    async def write_all(self, items: Sequence[Item]) -> list[Outcome | ControlPlaneError]:
        """Commits items which need not stay together; each gets its own outcome or error."""
        ...


class ElectionPort(Protocol):
    def leader(self) -> Term | None:
        """The term under way as this replica knows it; None without a leader."""
        ...

    async def step_down(self) -> int:
        """Ends this replica's own term and returns the epoch; Refused when this replica does not lead."""
        ...

    def clocks_off(self) -> Mapping[str, float]:
        """The errors of wall clocks in seconds, by the id of the replica."""
        ...


@dataclass(frozen=True, slots=True)
class Reads:
    """The state by this replica's cache; etcd itself for changes unknown to the cache."""

    store: Store
    cache: Cache
    ledgers: Ledgers


@dataclass(frozen=True, slots=True)
class Writes:
    """The way into etcd for users: the writer, the clock, new identities, the space left in etcd."""

    writer: Writer
    clock: Clock
    mint: Mint
    space: SpaceWatch


@dataclass(frozen=True, slots=True)
class ReplicaIdentity:
    """`incarnation` is new with every start of the replica."""

    id: str
    version: str
    incarnation: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiPorts:
    """All ports of an apiserver, for its composition. `record` keeps events for people."""

    reads: Reads
    writes: Writes
    replica: ReplicaIdentity
    election: ElectionPort
    renewals: Renewals
    record: Record = ignore
    quarantine: Quarantine | None = None
    keyring: Keyring = NO_KEYS
    # Asks every caller for credentials; without it every caller may do everything.
    closed: bool = False
    cluster_key: ClusterKey | None = None
    # Of credentials that issuers outside have made.
    verifiers: Sequence[CredentialVerifier] = ()
    # The certificate of this replica; None: connections are not encrypted.
    tls: TlsSource | None = None
    chance: Callable[[int], bytes] = chance

    def peer_credential(self, address: str) -> str:
        """This replica's credential for the replica at the address, '' without a cluster key."""
        return self.cluster_key.replica_credential(address) if self.cluster_key is not None else ""
