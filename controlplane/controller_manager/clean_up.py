"""Clean-up: finished orders go after the configured time, old terms and cycles when there are too many.

The time counts from the later of the order's end and the time of the order's identity, so that a repeated submit of a
cleaned identity is always old enough to be refused. Before an order goes, `status/cleaned` records that its identity,
and all older identities, were used, whatever `clean_up` is later. An order deleted by its user leaves
`status/deleted/<order>` until then. The order's config goes last: while the config is there, all other keys of the
order can be found.

With an archive, an order is on disk before any key of the order is deleted; while the archive fails the order stays,
and `status/archive` says why.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any

from controlplane.aio.clock import Clock
from controlplane.aio.failpoint import NONE as NO_FAILPOINTS
from controlplane.aio.failpoint import Failpoints
from controlplane.cache import identities
from controlplane.cache.effective_settings import settings_of
from controlplane.cache.ledgers import Ledgers, Touched
from controlplane.cache.snapshot import Entry
from controlplane.controller_manager.archive import Archive
from controlplane.controller_manager.controller_writer import ControllerWriter
from controlplane.controller_manager.runner import Again
from controlplane.model import identity, times
from controlplane.model.cleaned_orders import Cleaned, DeletedOrder
from controlplane.model.cluster import ArchiveStatus
from controlplane.model.errors import Broken, Invalid, Unavailable
from controlplane.model.lifecycle import FINAL_ORDER
from controlplane.model.order import OrderStatus
from controlplane.store import codec, keys
from controlplane.store.transaction import Item, Operation, delete, mod_is, put

KEPT_TERMS = 1_000
KEPT_CYCLES = 10_000
HISTORY = "history"
_DELETES_AN_ITEM = 50
_PAUSE_SECONDS = 0.1
_HISTORY_SECONDS = 60.0
_ARCHIVE_SECONDS = 5.0
# Clocks may be off, but no clock made an identity further ahead than this: such a time is not waited for.
_AHEAD_SECONDS = 86_400.0


class CleanUp:
    name = "clean-up"
    kind = "Order"

    def __init__(
        self,
        ledgers: Ledgers,
        writer: ControllerWriter,
        clock: Clock,
        archive: Archive | None = None,
        failpoints: Failpoints = NO_FAILPOINTS,
    ) -> None:
        self._ledgers = ledgers
        self._writer = writer
        self._clock = clock
        self._archive = archive
        self._failpoints = failpoints
        # Orders on disk whose keys are not all deleted yet.
        self._kept: set[str] = set()
        # The newest identity that waits to go, and the lock of its writer.
        self._newest = 0
        self._noting = asyncio.Lock()
        self._telling = False

    def every_key(self) -> Iterable[str]:
        snapshot = self._ledgers.cache.snapshot
        trees = (keys.ORDER_STATUS, keys.ENDED, keys.DELETED_ORDERS)
        return [HISTORY, *{name for tree in trees for name in snapshot.names(tree)}]

    def keys_affected_by(self, touched: Touched) -> Iterable[str]:
        return [order for order in touched.orders if order not in self._ledgers.orders]

    async def reconcile(self, key: str) -> Again | None:
        if key == HISTORY:
            return await self._trim_history()
        snapshot = self._ledgers.cache.snapshot
        config = snapshot.get(keys.ORDERS, key)
        status = snapshot.get(keys.ORDER_STATUS, key)
        if status is None and not snapshot.has(keys.ENDED, key):
            return await self._forget(key)
        if config is not None:
            final = _read(status)
            if final is None or final.phase not in FINAL_ORDER:
                return None
            left = due_seconds(key, final, settings_of(snapshot).clean_up, self._clock.wall())
            if left > 0:
                return Again(after_seconds=left)
        if not await self._keep(key, config, status):
            return Again(after_seconds=_ARCHIVE_SECONDS)
        young = config is None and self._young_seconds(key) > 0
        if not young:
            await self._note(key)
        return await self._delete_order(key, mark=young)

    def _young_seconds(self, key: str) -> float:
        """Seconds until the identity alone is old enough to be refused."""
        minted = _minted(key, self._clock.wall())
        if minted is None:
            return 0.0
        return minted / 1000 + settings_of(self._ledgers.cache.snapshot).clean_up - self._clock.wall().timestamp()

    async def _forget(self, key: str) -> Again | None:
        """Deletes the mark of a deleted order once the order's identity is too old anyhow."""
        entry = self._ledgers.cache.snapshot.get(keys.DELETED_ORDERS, key)
        if entry is None:
            return None
        left = self._young_seconds(key)
        if left > 0:
            return Again(after_seconds=left)
        await self._note(key)
        await self._writer.write([Item((mod_is(entry.stored.key, entry.revision),), (delete(entry.stored.key),))])
        return None

    async def _note(self, key: str) -> None:
        """Returns when the identity is on record as used. A single write serves all callers that wait meanwhile."""
        minted = _minted(key, self._clock.wall())
        if minted is None:
            return
        self._newest = max(self._newest, minted)
        async with self._noting:
            mark = identities.cleaned(self._ledgers.cache.snapshot)
            # A mark in the future was written by no leader, and is ignored.
            recorded = mark.milliseconds if mark.milliseconds <= self._clock.wall().timestamp() * 1000 else 0
            if minted <= recorded:
                return
            through = times.show(datetime.fromtimestamp(max(self._newest, recorded) / 1000, UTC))
            record = put(keys.CLEANED, codec.encode(Cleaned(epoch=self._writer.epoch, through=through)))
            await self._writer.write([Item((mod_is(keys.CLEANED, mark.revision),), (record,))])

    async def _keep(self, key: str, config: Entry[Any] | None, status: Entry[OrderStatus] | None) -> bool:
        """Whether the order may be deleted: the order is on disk, or there is no archive."""
        if self._archive is None or key in self._kept:
            return True
        ended = sorted(self._ledgers.cache.snapshot.all(keys.ENDED, key), key=lambda entry: entry.revision)
        try:
            await self._archive.keep(key, config, status, ended)
        except Unavailable:
            await self._tell_archive()
            return False
        self._kept.add(key)
        await self._tell_archive()
        return True

    async def _tell_archive(self) -> None:
        """Writes when the archive begins to fail, and when the archive works again or is gone."""
        entry = self._ledgers.cache.snapshot.single(keys.ARCHIVE_STATUS)
        why = self._archive.why if self._archive is not None else ""
        if self._telling or bool(why) == (entry is not None):
            return
        self._telling = True
        try:
            now = times.show(self._clock.wall())
            record = put(keys.ARCHIVE_STATUS, codec.encode(ArchiveStatus(epoch=self._writer.epoch, why=why, since=now)))
            compare = mod_is(keys.ARCHIVE_STATUS, entry.revision if entry is not None else 0)
            await self._writer.write([Item((compare,), (record if why else delete(keys.ARCHIVE_STATUS),))])
        finally:
            self._telling = False

    async def _delete_order(self, key: str, *, mark: bool) -> Again | None:
        """Ended attempts first, in bounded pieces, then the status, the config last of all.

        `mark`: leaves a record that the order existed.
        """
        snapshot = self._ledgers.cache.snapshot
        ended = [entry.stored.key for entry in snapshot.all(keys.ENDED, key)]
        self._failpoints.reach("clean-up.before-delete")
        if len(ended) > _DELETES_AN_ITEM:
            await self._writer.write([Item(then=tuple(delete(name) for name in ended[:_DELETES_AN_ITEM]))])
            self._failpoints.reach("clean-up.between")
            return Again(after_seconds=_PAUSE_SECONDS)
        config = keys.order(key)
        entry = snapshot.get(keys.ORDERS, key)
        # An order that changed meanwhile is written to disk again.
        self._kept.discard(key)
        deleting = Item(
            compares=(mod_is(config, entry.revision if entry is not None else 0),),
            then=(
                *(delete(name) for name in ended),
                delete(keys.order_status(key)),
                *((delete(config),) if entry is not None else ()),
                *((self._mark(key),) if mark else ()),
            ),
        )
        await self._writer.write([deleting])
        self._failpoints.reach("clean-up.after-delete")
        return Again(after_seconds=max(0.0, self._young_seconds(key))) if mark else None

    def _mark(self, key: str) -> Operation:
        deleted = DeletedOrder(order=key, epoch=self._writer.epoch, at=times.show(self._clock.wall()))
        return put(keys.deleted_order(key), codec.encode(deleted))

    async def _trim_history(self) -> Again:
        await self._tell_archive()
        snapshot = self._ledgers.cache.snapshot
        terms = sorted(entry.stored.key for entry in snapshot.all(keys.TERMS))
        cycles = sorted(entry.stored.key for entry in snapshot.all(keys.CYCLES))
        old = [*terms[:-KEPT_TERMS], *cycles[:-KEPT_CYCLES]]
        if old:
            await self._writer.write([Item(then=tuple(delete(name) for name in old[:_DELETES_AN_ITEM]))])
        return Again(after_seconds=_PAUSE_SECONDS if len(old) > _DELETES_AN_ITEM else _HISTORY_SECONDS)


def _minted(order: str, now: datetime) -> int | None:
    """The time of the identity in milliseconds; None for an identity that admission would refuse."""
    try:
        minted = identity.milliseconds(order)
    except Invalid:
        return None
    return minted if minted <= (now.timestamp() + _AHEAD_SECONDS) * 1000 else None


def _read(status: Entry[OrderStatus] | None) -> OrderStatus | None:
    """Not kept decoded: many orders wait for their clean-up, and no other code reads them."""
    try:
        return status.read() if status is not None else None
    except Broken:
        return None


def due_seconds(order: str, status: OrderStatus, clean_up: float, now: datetime) -> float:
    """Seconds until the order may go; 0 or less when the order may go now. An unreadable end counts as now."""
    present = now.timestamp()
    moments = [_finished(status, present)]
    minted = _minted(order, now)
    if minted is not None:
        moments.append(minted / 1000)
    return max(moments) + float(clean_up) - present


def _finished(status: OrderStatus, present: float) -> float:
    """As a number: a time written by hand may lie beyond all calendars once seconds are added."""
    try:
        finished = times.parse(status.finished, "finished").timestamp() if status.finished else present
    except (Invalid, OverflowError, ValueError):
        return present
    return finished if finished <= present + _AHEAD_SECONDS else present
