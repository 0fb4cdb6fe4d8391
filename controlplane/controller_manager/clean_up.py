"""Clean-up: finished orders go after the set time, old terms and cycles when there are too many.

The time counts from the later of the order's end and its identity's own time, so that a repeated submit of a cleaned
identity is always old enough to be refused. The order's config goes last: while it is there, the rest can be found.
With an archive, an order is on disk before anything of it is deleted; while that cannot be done it stays, and
`status/archive` says so.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from datetime import UTC, datetime, timedelta

from controlplane.aio.clock import Clock
from controlplane.aio.failpoint import NONE as NO_FAILPOINTS
from controlplane.aio.failpoint import Failpoints
from controlplane.cache.ledgers import Ledgers, Touched
from controlplane.cache.settings import settings_of
from controlplane.cache.snapshot import Entry
from controlplane.controller_manager.archive import Archive
from controlplane.controller_manager.runner import Again
from controlplane.model import identity, times
from controlplane.model.cluster import ArchiveStatus
from controlplane.model.errors import Broken, Conflict, Invalid, Unavailable
from controlplane.model.lifecycle import FINAL_ORDER
from controlplane.model.order import OrderStatus
from controlplane.store import codec, keys
from controlplane.store.fenced import FencedWriter
from controlplane.store.transaction import Item, delete, mod_is, put

KEPT_TERMS = 1_000
KEPT_CYCLES = 10_000
HISTORY = "history"
_DELETES_AN_ITEM = 50
_PAUSE_SECONDS = 0.1
_HISTORY_SECONDS = 60.0
_ARCHIVE_SECONDS = 5.0


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
        self._telling = False

    def every_key(self) -> Iterable[str]:
        snapshot = self._ledgers.cache.snapshot
        return [HISTORY, *snapshot.names("status/orders"), *snapshot.names("status/ended")]

    def concerned(self, touched: Touched) -> Iterable[str]:
        return [order for order in touched.orders if order not in self._ledgers.orders]

    async def reconcile(self, key: str) -> Again | None:
        if key == HISTORY:
            return await self._trim_history()
        snapshot = self._ledgers.cache.snapshot
        config = snapshot.get("config/orders", key)
        status = snapshot.get("status/orders", key)
        if status is None and not snapshot.count("status/ended", key):
            return None
        if config is not None:
            found = _read(status)
            if found is None or found.phase not in FINAL_ORDER:
                return None
            left = due_seconds(key, found, settings_of(snapshot).clean_up, self._clock.wall())
            if left > 0:
                return Again(after_seconds=left)
        if not await self._keep(key, config, status):
            return Again(after_seconds=_ARCHIVE_SECONDS)
        return await self._delete_order(key)

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

    async def _delete_order(self, key: str) -> Again | None:
        """Ended attempts first, in bounded pieces, then the status, the config last of all."""
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
                ),
            )
        )
        self._failpoints.reach("clean-up.after-delete")
        return None

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


def _read(status: Entry | None) -> OrderStatus | None:
    """Not kept decoded: those that wait to go are many, and nobody else looks at them."""
    try:
        return status.read(OrderStatus) if status is not None else None
    except Broken:
        return None


def due_seconds(order: str, status: OrderStatus, clean_up: float, now: datetime) -> float:
    """How long until the order may go; not above zero when it may go now."""
    moments = [times.parse(status.finished, "finished")] if status.finished else [now]
    with suppress(Invalid, OverflowError, OSError, ValueError):
        moments.append(datetime.fromtimestamp(identity.milliseconds(order) / 1000, UTC))
    return (max(moments) + timedelta(seconds=clean_up) - now).total_seconds()
