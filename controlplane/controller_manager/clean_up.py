"""Clean-up: finished orders go after the set time, old terms and cycles when there are too many.

The time counts from the later of the order's end and its identity's own time, so that a repeated submit of a cleaned
identity is always old enough to be refused. Before an order goes, `status/cleaned` says that its identity, and what is
older, was used, whatever `clean_up` is later. An order that its user deleted leaves `status/deleted/<order>` until
then. The order's config goes last: while it is there, the rest can be found.
With an archive, an order is on disk before anything of it is deleted; while that cannot be done it stays, and
`status/archive` says so.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from datetime import UTC, datetime

from controlplane.aio.clock import Clock
from controlplane.aio.failpoint import NONE as NO_FAILPOINTS
from controlplane.aio.failpoint import Failpoints
from controlplane.cache import identities
from controlplane.cache.ledgers import Ledgers, Touched
from controlplane.cache.settings import settings_of
from controlplane.cache.snapshot import Entry
from controlplane.controller_manager.archive import Archive
from controlplane.controller_manager.runner import Again
from controlplane.model import identity, times
from controlplane.model.cluster import ArchiveStatus
from controlplane.model.errors import Broken, Conflict, Invalid, Unavailable
from controlplane.model.identities import Cleaned, DeletedOrder
from controlplane.model.lifecycle import FINAL_ORDER
from controlplane.model.order import OrderStatus
from controlplane.store import codec, keys
from controlplane.store.fenced import FencedWriter
from controlplane.store.transaction import Item, Operation, delete, mod_is, put

KEPT_TERMS = 1_000
KEPT_CYCLES = 10_000
HISTORY = "history"
_DELETES_AN_ITEM = 50
_PAUSE_SECONDS = 0.1
_HISTORY_SECONDS = 60.0
_ARCHIVE_SECONDS = 5.0
# A clock may be off; an identity further ahead than this was made by none, and nothing waits for its time.
_AHEAD_SECONDS = 86_400.0


class CleanUp:
    name = "clean-up"

    def __init__(
        self,
        ledgers: Ledgers,
        writer: FencedWriter,
        clock: Clock,
        archive: Archive | None = None,
        failpoints: Failpoints = NO_FAILPOINTS,
    ) -> None:
        self._ledgers = ledgers
        self._writer = writer
        self._clock = clock
        self._archive = archive
        self._failpoints = failpoints
        # On disk and not all deleted yet.
        self._kept: set[str] = set()
        # The newest identity that waits to go, and who writes it down.
        self._newest = 0
        self._noting = asyncio.Lock()
        self._telling = False

    def every_key(self) -> Iterable[str]:
        snapshot = self._ledgers.cache.snapshot
        trees = ("status/orders", "status/ended", "status/deleted")
        return [HISTORY, *{name for tree in trees for name in snapshot.names(tree)}]

    def concerned(self, touched: Touched) -> Iterable[str]:
        return [order for order in touched.orders if order not in self._ledgers.orders]

    async def reconcile(self, key: str) -> Again | None:
        if key == HISTORY:
            return await self._trim_history()
        snapshot = self._ledgers.cache.snapshot
        config = snapshot.get("config/orders", key)
        status = snapshot.get("status/orders", key)
        if status is None and not snapshot.count("status/ended", key):
            return await self._forget(key)
        if config is not None:
            found = _read(status)
            if found is None or found.phase not in FINAL_ORDER:
                return None
            left = due_seconds(key, found, settings_of(snapshot).clean_up, self._clock.wall())
            if left > 0:
                return Again(after_seconds=left)
        if not await self._keep(key, config, status):
            return Again(after_seconds=_ARCHIVE_SECONDS)
        young = config is None and self._young_seconds(key) > 0
        if not young:
            await self._note(key)
        return await self._delete_order(key, mark=young)

    def _young_seconds(self, key: str) -> float:
        """How long until the identity alone is old enough to be refused."""
        made = _made(key, self._clock.wall())
        if made is None:
            return 0.0
        return made / 1000 + settings_of(self._ledgers.cache.snapshot).clean_up - self._clock.wall().timestamp()

    async def _forget(self, key: str) -> Again | None:
        """Deletes the mark of a deleted order once the order's identity is too old anyhow."""
        entry = self._ledgers.cache.snapshot.get("status/deleted", key)
        if entry is None:
            return None
        left = self._young_seconds(key)
        if left > 0:
            return Again(after_seconds=left)
        await self._note(key)
        await self._write(Item((mod_is(entry.stored.key, entry.revision),), (delete(entry.stored.key),)))
        return None

    async def _note(self, key: str) -> None:
        """Returns when it is on record that this identity was used. One write does for all that wait meanwhile."""
        made = _made(key, self._clock.wall())
        if made is None:
            return
        self._newest = max(self._newest, made)
        async with self._noting:
            mark = identities.cleaned(self._ledgers.cache.snapshot)
            # One that lies ahead was written by no leader, and says nothing.
            known = mark.milliseconds if mark.milliseconds <= self._clock.wall().timestamp() * 1000 else 0
            if made <= known:
                return
            through = times.show(datetime.fromtimestamp(max(self._newest, known) / 1000, UTC))
            record = put(keys.CLEANED, codec.encode(Cleaned(epoch=self._writer.epoch, through=through)))
            await self._write(Item((mod_is(keys.CLEANED, mark.revision),), (record,)))

    async def _keep(self, key: str, config: Entry | None, status: Entry | None) -> bool:
        """Whether the order may be deleted: it is on disk, if it has to be."""
        if self._archive is None or key in self._kept:
            return True
        ended = sorted(self._ledgers.cache.snapshot.all("status/ended", key), key=lambda entry: entry.revision)
        try:
            await self._archive.keep(key, config, status, ended)
        except Unavailable:
            await self._tell_archive()
            return False
        self._kept.add(key)
        await self._tell_archive()
        return True

    async def _tell_archive(self) -> None:
        """One write when the archive fails, one when it is well again or there is none to write to."""
        entry = self._ledgers.cache.snapshot.get("status", "archive")
        why = self._archive.why if self._archive is not None else ""
        if self._telling or bool(why) == (entry is not None):
            return
        self._telling = True
        try:
            now = times.show(self._clock.wall())
            told = put(keys.ARCHIVE_STATUS, codec.encode(ArchiveStatus(epoch=self._writer.epoch, why=why, since=now)))
            compare = mod_is(keys.ARCHIVE_STATUS, entry.revision if entry is not None else 0)
            await self._write(Item((compare,), (told if why else delete(keys.ARCHIVE_STATUS),)))
        finally:
            self._telling = False

    async def _delete_order(self, key: str, *, mark: bool) -> Again | None:
        """Ended attempts first, in bounded pieces, then the status, the config last of all.

        `mark`: leaves a note that the order was there.
        """
        snapshot = self._ledgers.cache.snapshot
        ended = [entry.stored.key for entry in snapshot.all("status/ended", key)]
        self._failpoints.reach("clean-up.before-delete")
        if len(ended) > _DELETES_AN_ITEM:
            await self._write(Item(then=tuple(delete(name) for name in ended[:_DELETES_AN_ITEM])))
            self._failpoints.reach("clean-up.between")
            return Again(after_seconds=_PAUSE_SECONDS)
        config = keys.order(key)
        entry = snapshot.get("config/orders", key)
        # Should it have changed meanwhile, it is put on disk again as it is then.
        self._kept.discard(key)
        await self._write(
            Item(
                compares=(mod_is(config, entry.revision if entry is not None else 0),),
                then=(
                    *(delete(name) for name in ended),
                    delete(keys.order_status(key)),
                    *((delete(config),) if entry is not None else ()),
                    *((self._mark(key),) if mark else ()),
                ),
            )
        )
        self._failpoints.reach("clean-up.after-delete")
        return Again(after_seconds=max(0.0, self._young_seconds(key))) if mark else None

    def _mark(self, key: str) -> Operation:
        deleted = DeletedOrder(order=key, epoch=self._writer.epoch, at=times.show(self._clock.wall()))
        return put(keys.deleted_order(key), codec.encode(deleted))

    async def _trim_history(self) -> Again:
        await self._tell_archive()
        snapshot = self._ledgers.cache.snapshot
        terms = sorted(entry.stored.key for entry in snapshot.all("terms"))
        cycles = sorted(entry.stored.key for entry in snapshot.all("cycles"))
        old = [*terms[:-KEPT_TERMS], *cycles[:-KEPT_CYCLES]]
        if old:
            await self._write(Item(then=tuple(delete(name) for name in old[:_DELETES_AN_ITEM])))
        return Again(after_seconds=_PAUSE_SECONDS if len(old) > _DELETES_AN_ITEM else _HISTORY_SECONDS)

    async def _write(self, item: Item) -> None:
        outcome = await self._writer.write(item)
        await self._ledgers.cache.reached(outcome.revision)
        if not outcome.succeeded:
            raise Conflict("the order changed meanwhile")


def _made(order: str, now: datetime) -> int | None:
    """When the identity was made, in milliseconds; None for one that no admission lets in."""
    try:
        made = identity.milliseconds(order)
    except Invalid:
        return None
    return made if made <= (now.timestamp() + _AHEAD_SECONDS) * 1000 else None


def _read(status: Entry | None) -> OrderStatus | None:
    """Not kept decoded: those that wait to go are many, and nobody else looks at them."""
    try:
        return status.read(OrderStatus) if status is not None else None
    except Broken:
        return None


def due_seconds(order: str, status: OrderStatus, clean_up: float, now: datetime) -> float:
    """How long until the order may go; not above zero when it may go now. An end that nobody can read is now."""
    present = now.timestamp()
    moments = [_finished(status, present)]
    made = _made(order, now)
    if made is not None:
        moments.append(made / 1000)
    return max(moments) + float(clean_up) - present


def _finished(status: OrderStatus, present: float) -> float:
    """As a number: what somebody wrote by hand may lie beyond all calendars once a time is added to it."""
    try:
        finished = times.parse(status.finished, "finished").timestamp() if status.finished else present
    except (Invalid, OverflowError, ValueError):
        return present
    return finished if finished <= present + _AHEAD_SECONDS else present
