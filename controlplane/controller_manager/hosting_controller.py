"""Hosting: names the replica that runs the joblet of each target with a `kubeconfig_secret`.

A single key stands for all hosted targets, since the host of a target depends on the hosts of all others. The
controller writes `status/hosting/<target>`, which replicas follow (`controlplane/hosting`). While any target is hosted
the leader listens to the pulses of the other replicas, so that a killed host is replaced at once, and not when its
lease has run out.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable, Iterator

from controlplane.cache.ledgers import Ledgers, Touched
from controlplane.cache.snapshot import Entry, Snapshot
from controlplane.controller_manager.controller_writer import ControllerWriter
from controlplane.controller_manager.runner import Again
from controlplane.election.peer_presence import PeerPresence
from controlplane.election.view import CandidateEntry
from controlplane.model.hosting import GuestTarget, Hosting, assign, living, why_not
from controlplane.store import codec, keys
from controlplane.store.transaction import Item, delete, mod_is, put

_ALL = "hosting"
_TREES = frozenset({keys.SECRETS, keys.HOSTING, keys.CANDIDATES})


class HostingController:
    name = "hosting"
    kind = "Controller"

    def __init__(self, ledgers: Ledgers, writer: ControllerWriter, presence: PeerPresence | None = None) -> None:
        self._ledgers = ledgers
        self._writer = writer
        self._presence = presence
        # The last known revision of each target's config: work and joblet of a target change all the time.
        self._seen: dict[str, int] = {}

    def every_key(self) -> Iterable[str]:
        return (_ALL,)

    def keys_affected_by(self, touched: Touched) -> Iterable[str]:
        moved = [name for name in touched.targets if self._moved(name)]
        return (_ALL,) if moved or not touched.config.isdisjoint(_TREES) else ()

    def _moved(self, name: str) -> bool:
        """Whether the user changed the target, and the target is or was hosted."""
        snapshot = self._ledgers.cache.snapshot
        entry = snapshot.get(keys.TARGETS, name)
        if entry is None:
            self._seen.pop(name, None)
        elif self._seen.get(name) == entry.revision:
            return False
        else:
            self._seen[name] = entry.revision
        target = entry.readable() if entry is not None else None
        hosted = target is not None and bool(target.kubeconfig_secret)
        return hosted or snapshot.has(keys.HOSTING, name)

    async def attend(self, ask: Callable[[str], None]) -> None:
        """Beside the runner, until cancelled: asks for a reconcile whenever a replica is gone or back."""
        if self._presence is None:
            return
        self._presence.changed = lambda: ask(_ALL)
        try:
            await asyncio.Event().wait()
        finally:
            self._presence.changed = lambda: None
            await self._presence.close()

    async def reconcile(self, key: str) -> Again | None:
        snapshot, absent = self._ledgers.cache.snapshot, frozenset[str]()
        if self._presence is not None:
            self._presence.follow(candidates_of(snapshot) if any(guests_of(snapshot)) else ())
            absent = frozenset(self._presence.absent)
        await self._writer.write(list(plan(snapshot, self._writer.epoch, absent)))
        return None


def plan(snapshot: Snapshot, epoch: int, absent: Collection[str] = ()) -> Iterator[Item]:
    """The writes, each comparing the record behind the decision. Absent replicas host no target, unless all are absent:
    then this replica may be the deaf one.
    """
    guests = {guest.name: guest for guest in guests_of(snapshot)}
    hosts = living((entry.create_revision, entry.candidate) for entry in candidates_of(snapshot))
    hosts = [host for host in hosts if host.incarnation not in absent] or hosts
    records = {entry.parts[0]: entry for entry in snapshot.all(keys.HOSTING)}
    now = {name: record.incarnation for name, entry in records.items() if (record := entry.readable()) is not None}
    decided = assign(guests.values(), hosts, now)
    for name, host in decided.items():
        if host is None:
            wanted = Hosting(target=name, epoch=epoch, reason=why_not(guests[name], hosts))
        else:
            wanted = Hosting(target=name, epoch=epoch, replica=host.id, incarnation=host.incarnation)
        if not _says(records.get(name), wanted):
            yield _writing(name, records.get(name), wanted)
    for name in records.keys() - decided.keys():
        yield _writing(name, records[name], None)


def candidates_of(snapshot: Snapshot) -> Iterator[CandidateEntry]:
    for entry in snapshot.all(keys.CANDIDATES):
        candidate = entry.readable()
        if candidate is not None:
            stored = entry.stored
            yield CandidateEntry(stored.key, candidate, stored.create_revision, stored.mod_revision, stored.lease)


def guests_of(snapshot: Snapshot) -> Iterator[GuestTarget]:
    for target in snapshot.objects(keys.TARGETS):
        if target.kubeconfig_secret:
            secret = snapshot.secret(target.kubeconfig_secret)
            sealed = secret.sealed if secret is not None else None
            yield GuestTarget(target.name, target.id, sealed.key if sealed is not None else "")


def _says(entry: Entry[Hosting] | None, wanted: Hosting) -> bool:
    record = entry.readable() if entry is not None else None
    if record is None:
        return False
    return (record.replica, record.incarnation, record.reason) == (wanted.replica, wanted.incarnation, wanted.reason)


def _writing(name: str, entry: Entry[Hosting] | None, wanted: Hosting | None) -> Item:
    key = keys.hosting(name)
    compare = mod_is(key, entry.revision if entry is not None else 0)
    return Item((compare,), (put(key, codec.encode(wanted)) if wanted is not None else delete(key),))
