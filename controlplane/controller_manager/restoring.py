"""Restoring: a leader on a restored etcd places no task until the fate of all earlier work is known.

The term begins with `take_note`: an etcd with another cluster id than the last leader worked on was restored. Joblets
then stop all work before they open a session. Once all have reported, or a person ended the wait, all open work ends as
Lost; with the last end placing goes on, with attempt numbers above all numbers that any joblet knows. Each step is in
etcd for the next leader to find.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial

import msgspec
import structlog

from controlplane.aio.clock import Clock
from controlplane.cache import restore_state
from controlplane.cache.ledgers import Ledgers, Touched
from controlplane.cache.snapshot import Snapshot
from controlplane.controller_manager import evictions_and_losses, release
from controlplane.controller_manager.controller_writer import ControllerWriter
from controlplane.controller_manager.runner import Again
from controlplane.model import times
from controlplane.model.cluster import ClusterStatus
from controlplane.model.errors import OutcomeUnknown, Unavailable
from controlplane.model.isolation import sentence
from controlplane.quarantine import Quarantine
from controlplane.store import codec, keys
from controlplane.store.fenced import FencedWriter
from controlplane.store.transaction import Item, mod_is, put

log = structlog.get_logger(__name__)

KEY = "restore"
_AT_ONCE = 200
_RETRY_SECONDS = 0.1
# A target in such a phase had no joblet when the backup was made, unless a session says otherwise.
_SILENT = frozenset({"Provisioning", "Failed", "Gone"})


async def take_note(
    ledgers: Ledgers, fenced: FencedWriter, clock: Clock, cluster_id: str, quarantine: Quarantine | None = None
) -> None:
    """Returns when the cache names the etcd that the leader works on. Writes only when another etcd was on record.

    A failure is tried again within the term, and no task is placed meanwhile: the leader must know whether etcd was
    restored.
    """
    quarantine = quarantine or Quarantine(clock)
    work = partial(_take_note, ledgers, ControllerWriter(fenced, ledgers.cache), clock, cluster_id)
    await quarantine.supervise(Restoring.name, "Cluster", KEY, work)
    quarantine.passed(Restoring.name, "Cluster", KEY)


async def _take_note(ledgers: Ledgers, writer: ControllerWriter, clock: Clock, cluster_id: str) -> None:
    while True:
        snapshot = ledgers.cache.snapshot
        new = noted(snapshot, cluster_id, epoch=writer.epoch, now=times.show(clock.wall()))
        if new is None:
            return
        try:
            written = await writer.offer(_recording(snapshot, new))
        except (OutcomeUnknown, Unavailable):
            await clock.sleep(_RETRY_SECONDS)
            continue
        if written and new.restoring:
            log.warning("etcd was restored: nothing is placed until joblets report", waiting_for=list(new.waiting_for))


def noted(snapshot: Snapshot, cluster_id: str, *, epoch: int, now: str) -> ClusterStatus | None:
    """The record about the etcd of this leader; None when the stored record says the same."""
    recorded = snapshot.cluster_status()
    if recorded is not None and recorded.cluster_id == cluster_id:
        return None
    if recorded is None:
        return ClusterStatus(epoch=epoch, cluster_id=cluster_id, since=now)
    return msgspec.structs.replace(
        recorded,
        epoch=epoch,
        cluster_id=cluster_id,
        since=now,
        restored=recorded.restored + 1,
        restoring=True,
        waiting_for=tuple(sorted(alive(snapshot))),
    )


def alive(snapshot: Snapshot) -> Iterable[str]:
    """The targets with a joblet or with work when the backup was made."""
    for name in snapshot.names(keys.TARGETS):
        status = snapshot.target_status(name)
        there = snapshot.has(keys.INVENTORY, name, keys.LIVE) or snapshot.has(keys.DESIRED, name)
        if there or (status is not None and status.phase not in _SILENT):
            yield name


class Restoring:
    name = "restoring"
    kind = "Controller"

    def __init__(self, ledgers: Ledgers, writer: ControllerWriter, clock: Clock) -> None:
        self._ledgers = ledgers
        self._writer = writer
        self._clock = clock

    def every_key(self) -> Iterable[str]:
        return [KEY]

    def keys_affected_by(self, touched: Touched) -> Iterable[str]:
        cluster = self._ledgers.cache.snapshot.cluster_status()
        if cluster is None or not cluster.restored:
            return []
        if cluster.restoring:
            return [KEY] if touched.targets or touched.config else []
        return [KEY] if touched.targets.intersection(cluster.waiting_for) else []

    async def reconcile(self, _key: str) -> Again | None:
        snapshot = self._ledgers.cache.snapshot
        cluster = snapshot.cluster_status()
        if cluster is None or not cluster.restored or restore_state.waiting_for(snapshot):
            return None
        if cluster.restoring and (lost := self._lost(snapshot)):
            await self._writer.write(lost)
            return Again(after_seconds=0)
        # Targets that a person did not wait for stay missing until they report: their attempt numbers count then, too.
        new = msgspec.structs.replace(
            cluster,
            epoch=self._writer.epoch,
            restoring=False,
            waiting_for=tuple(restore_state.missing(snapshot, cluster)),
            attempt_floor=max(cluster.attempt_floor, restore_state.known_attempt(snapshot, cluster.cluster_id)),
        )
        if msgspec.structs.replace(new, epoch=cluster.epoch) == cluster:
            return None
        await self._writer.write([_recording(snapshot, new)])
        if cluster.restoring:
            log.info("the restore is over, placing goes on", attempt_floor=new.attempt_floor)
        return None

    def _lost(self, snapshot: Snapshot) -> list[Item]:
        """Ends of open work, some at a time."""
        now = times.show(self._clock.wall())
        items: list[Item] = []
        for entry in snapshot.all(keys.DESIRED):
            live = evictions_and_losses.live_at(entry, snapshot)
            if live is None:
                continue
            ledger = self._ledgers.orders.get(live.fulfilment.order)
            cancelled = ledger is None or ledger.order.cancel
            try:
                end = release.ended_by_loss(
                    live, "Lost", cancelled=cancelled, epoch=self._writer.epoch, now=now, ledger=ledger
                )
            except Exception as error:  # noqa: BLE001 - supervision: the others end, and the restore with them
                log.error("a fulfilment cannot be ended", fulfilment=live.fulfilment.id, error=sentence(error))
                continue
            items.append(end.item)
            if len(items) == _AT_ONCE:
                break
        return items


def _recording(snapshot: Snapshot, new: ClusterStatus) -> Item:
    entry = snapshot.single(keys.CLUSTER_STATUS)
    compare = mod_is(keys.CLUSTER_STATUS, entry.revision if entry is not None else 0)
    return Item(compares=(compare,), then=(put(keys.CLUSTER_STATUS, codec.encode(new)),))
