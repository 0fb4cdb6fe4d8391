"""Hosting: names the replica that runs the joblet of each target with a `kubeconfig_secret`.

One key stands for all of them, since who hosts one depends on who hosts the others. What is written is
`status/hosting/<target>`; replicas follow it (`controlplane/hosting`). While anybody is hosted the leader listens to
the pulses of the others, so that a host that was killed is replaced at once and not when its lease has run out.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable, Iterator

from controlplane.cache.ledgers import Ledgers, Touched
from controlplane.cache.snapshot import Entry, Snapshot
from controlplane.controller_manager.runner import Again
from controlplane.election.attendance import Attendance
from controlplane.election.view import CandidateEntry
from controlplane.model.errors import Conflict
from controlplane.model.hosting import Guest, Hosting, assign, living, why_not
from controlplane.model.leadership import Candidate
from controlplane.model.secret import Secret
from controlplane.model.target import Target
from controlplane.store import codec, keys
from controlplane.store.fenced import FencedWriter
from controlplane.store.transaction import Item, delete, mod_is, put

_ALL = "hosting"
_TREES = frozenset({"config/secrets", "status/hosting", "election"})


class HostingController:
    name = "hosting"

    def __init__(self, ledgers: Ledgers, writer: FencedWriter, attendance: Attendance | None = None) -> None:
        self._ledgers = ledgers
        self._writer = writer
        self._attendance = attendance
        # The revision of each target's config when it was last heard of: its work and its joblet change all the time.
        self._seen: dict[str, int] = {}

    def every_key(self) -> Iterable[str]:
        return (_ALL,)

    def concerned(self, touched: Touched) -> Iterable[str]:
        moved = [name for name in touched.targets if self._moved(name)]
        return (_ALL,) if moved or not touched.config.isdisjoint(_TREES) else ()

    def _moved(self, name: str) -> bool:
        """Whether what the user says about the target changed, and that is or was that it be hosted."""
        snapshot = self._ledgers.cache.snapshot
        entry = snapshot.get("config/targets", name)
        if entry is None:
            self._seen.pop(name, None)
        elif self._seen.get(name) == entry.revision:
            return False
        else:
            self._seen[name] = entry.revision
        target = entry.sound(Target) if entry is not None else None
        hosted = target is not None and bool(target.kubeconfig_secret)
        return hosted or snapshot.get("status/hosting", name) is not None

    async def attend(self, ask: Callable[[str], None]) -> None:
        """Beside the runner, until cancelled: lets the runner ask again whenever a replica is gone or back."""
        if self._attendance is None:
            return
        self._attendance.changed = lambda: ask(_ALL)
        try:
            await asyncio.Event().wait()
        finally:
            self._attendance.changed = lambda: None
            await self._attendance.close()

    async def reconcile(self, key: str) -> Again | None:
        snapshot, absent = self._ledgers.cache.snapshot, frozenset[str]()
        if self._attendance is not None:
            self._attendance.follow(candidates_of(snapshot) if any(guests_of(snapshot)) else ())
            absent = frozenset(self._attendance.absent)
        items = list(plan(snapshot, self._writer.epoch, absent))
        if items:
            outcomes = await self._writer.write_all(items)
            await self._ledgers.cache.reached(max(outcome.revision for outcome in outcomes))
            if not all(outcome.succeeded for outcome in outcomes):
                raise Conflict("what hosting looked at changed meanwhile")
        return None


def plan(snapshot: Snapshot, epoch: int, absent: Collection[str] = ()) -> Iterator[Item]:
    """What has to be written, each item comparing the record that it was decided on. Who is absent hosts nobody, unless
    all are: then it may be this replica that hears nothing."""
    guests = {guest.name: guest for guest in guests_of(snapshot)}
    hosts = living((entry.create_revision, entry.candidate) for entry in candidates_of(snapshot))
    hosts = [host for host in hosts if host.incarnation not in absent] or hosts
    records = {entry.parts[0]: entry for entry in snapshot.all("status/hosting")}
    now = {name: record.incarnation for name, entry in records.items() if (record := entry.sound(Hosting)) is not None}
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
    for entry in snapshot.all("election"):
        candidate = entry.sound(Candidate)
        if candidate is not None:
            stored = entry.stored
            yield CandidateEntry(stored.key, candidate, stored.create_revision, stored.mod_revision, stored.lease)


def guests_of(snapshot: Snapshot) -> Iterator[Guest]:
    for entry in snapshot.all("config/targets"):
        target = entry.sound(Target)
        if target is not None and target.kubeconfig_secret:
            found = snapshot.get("config/secrets", target.kubeconfig_secret)
            secret = found.sound(Secret) if found is not None else None
            sealed = secret.sealed if secret is not None else None
            yield Guest(target.name, target.id, sealed.key if sealed is not None else "")


def _says(entry: Entry | None, wanted: Hosting) -> bool:
    record = entry.sound(Hosting) if entry is not None else None
    if record is None:
        return False
    return (record.replica, record.incarnation, record.reason) == (wanted.replica, wanted.incarnation, wanted.reason)


def _writing(name: str, entry: Entry | None, wanted: Hosting | None) -> Item:
    key = keys.hosting(name)
    compare = mod_is(key, entry.revision if entry is not None else 0)
    return Item((compare,), (put(key, codec.encode(wanted)) if wanted is not None else delete(key),))
