"""Restoring: a leader that finds itself on a restored etcd places nothing until it knows what became of the rest.

The term begins with `take_note`: an etcd with another cluster id than the last leader worked on was restored. Then the
joblets stop what they run before they open a session; once all have reported, or a person said not to wait, whatever
was open ends as Lost, and with the last of it placing goes on, with attempts above all that any joblet knows. Each step
is found in etcd by the next leader.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial

import msgspec
import structlog

from controlplane.aio.clock import Clock
from controlplane.cache import restoring
from controlplane.cache.ledgers import Ledgers, Touched
from controlplane.cache.snapshot import Snapshot
from controlplane.controller_manager import leaving, release
from controlplane.controller_manager.runner import Again
from controlplane.model import times
from controlplane.model.cluster import ClusterStatus
from controlplane.model.errors import Conflict, OutcomeUnknown, Unavailable
from controlplane.model.isolation import sentence
from controlplane.model.target import TargetStatus
from controlplane.quarantine import Quarantine
from controlplane.store import codec, keys
from controlplane.store.fenced import FencedWriter
from controlplane.store.transaction import Item, mod_is, put

log = structlog.get_logger(__name__)

KEY = "restore"
_AT_ONCE = 200
_RETRY_SECONDS = 0.1
# A target in one of these had no joblet when the backup was made, unless its session says otherwise.
_SILENT = frozenset({"Provisioning", "Failed", "Gone"})


async def take_note(
    ledgers: Ledgers, writer: FencedWriter, clock: Clock, cluster_id: str, quarantine: Quarantine | None = None
) -> None:
    """Returns when the leader's picture says on which etcd it works. Writes only when that is another than before.

    A failure is tried again within the term, and nothing is placed meanwhile: whether etcd was restored must be known.
    """
    quarantine = quarantine or Quarantine(clock)
    work = partial(_take_note, ledgers, writer, clock, cluster_id)
    await quarantine.supervise(Restoring.name, "Cluster", KEY, work)
    quarantine.passed(Restoring.name, "Cluster", KEY)


async def _take_note(ledgers: Ledgers, writer: FencedWriter, clock: Clock, cluster_id: str) -> None:
    while True:
        snapshot = ledgers.cache.snapshot
        new = noted(snapshot, cluster_id, epoch=writer.epoch, now=times.show(clock.wall()))
        if new is None:
            return
        try:
            outcome = await writer.write(_write(snapshot, new))
        except (OutcomeUnknown, Unavailable):
            await clock.sleep(_RETRY_SECONDS)
            continue
        await ledgers.cache.reached(outcome.revision)
        if outcome.succeeded and new.restoring:
            log.warning("etcd was restored: nothing is placed until joblets report", waiting_for=list(new.waiting_for))


def noted(snapshot: Snapshot, cluster_id: str, *, epoch: int, now: str) -> ClusterStatus | None:
    """What to write down about the etcd that this leader works on; None when it is on record."""
    known = restoring.cluster_of(snapshot)
    if known is not None and known.cluster_id == cluster_id:
        return None
    if known is None:
        return ClusterStatus(epoch=epoch, cluster_id=cluster_id, since=now)
    return msgspec.structs.replace(
        known,
        epoch=epoch,
        cluster_id=cluster_id,
        since=now,
        restored=known.restored + 1,
        restoring=True,
        waiting_for=tuple(sorted(alive(snapshot))),
    )


def alive(snapshot: Snapshot) -> Iterable[str]:
    """The targets that had a joblet when the backup was made, or work that was theirs."""
    for name in snapshot.names("config/targets"):
        entry = snapshot.get("status/targets", name)
        status = entry.sound(TargetStatus) if entry is not None else None
        live = snapshot.get("inventory", name, keys.LIVE)
        if live is not None or snapshot.count("desired", name) or (status is not None and status.phase not in _SILENT):
            yield name


class Restoring:
    name = "restoring"

    def __init__(self, ledgers: Ledgers, writer: FencedWriter, clock: Clock) -> None:
        self._ledgers = ledgers
        self._writer = writer
        self._clock = clock

    def every_key(self) -> Iterable[str]:
        return [KEY]

    def concerned(self, touched: Touched) -> Iterable[str]:
        cluster = restoring.cluster_of(self._ledgers.cache.snapshot)
        if cluster is None or not cluster.restored:
            return []
        if cluster.restoring:
            return [KEY] if touched.targets or touched.config else []
        return [KEY] if touched.targets.intersection(cluster.waiting_for) else []

    async def reconcile(self, _key: str) -> Again | None:
        snapshot = self._ledgers.cache.snapshot
        cluster = restoring.cluster_of(snapshot)
        if cluster is None or not cluster.restored or restoring.waiting_for(snapshot):
            return None
        if cluster.restoring and (lost := self._lost(snapshot)):
            await self._write(lost)
            return Again(after_seconds=0)
        # Whom a person did not want to wait for is missed until it comes: what it knows counts then, too.
        new = msgspec.structs.replace(
            cluster,
            epoch=self._writer.epoch,
            restoring=False,
            waiting_for=tuple(restoring.missing(snapshot, cluster)),
            attempt_floor=max(cluster.attempt_floor, restoring.known_attempt(snapshot, cluster.cluster_id)),
        )
        if msgspec.structs.replace(new, epoch=cluster.epoch) == cluster:
            return None
        await self._write([_write(snapshot, new)])
        if cluster.restoring:
            log.info("the restore is over, placing goes on", attempt_floor=new.attempt_floor)
        return None

    def _lost(self, snapshot: Snapshot) -> list[Item]:
        """Ends of what was open, some at a time."""
        now = times.show(self._clock.wall())
        items: list[Item] = []
        for entry in snapshot.all("desired"):
            live = leaving.live_at(entry, snapshot)
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

    async def _write(self, items: list[Item]) -> None:
        outcomes = await self._writer.write_all(items)
        await self._ledgers.cache.reached(max(outcome.revision for outcome in outcomes))
        if not all(outcome.succeeded for outcome in outcomes):
            raise Conflict("what was restored moved on meanwhile")


def _write(snapshot: Snapshot, new: ClusterStatus) -> Item:
    entry = snapshot.get("status", "cluster")
    compare = mod_is(keys.CLUSTER_STATUS, entry.revision if entry is not None else 0)
    return Item(compares=(compare,), then=(put(keys.CLUSTER_STATUS, codec.encode(new)),))
