"""Targets: records their phases, and gives work to others that cannot stay.

The grace time is counted on the leader's own monotonic clock from when it saw the session gone; a new leader counts
anew, which is late but never early. It is not below the time within which holders of unique resources are dead, so
claims go with the attempts; where nothing kills holders, those stay until their end is certain (`holders`). The phase
goes first among what is written: work leaves a target only when it is on record why.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice

from msgspec.structs import replace

from controlplane.aio.clock import Clock
from controlplane.cache.ledgers import Ledgers, Touched
from controlplane.cache.settings import settings_of
from controlplane.controller_manager import holders, leaving
from controlplane.controller_manager.health import Sight, phase_of, reason_of
from controlplane.controller_manager.runner import Again
from controlplane.engine.world import row_of
from controlplane.model import silence, times
from controlplane.model.errors import Conflict
from controlplane.model.lifecycle import TargetPhase
from controlplane.model.quantity import Number
from controlplane.model.settings import Settings
from controlplane.model.target import Live, Target, TargetStatus
from controlplane.store import codec, keys
from controlplane.store.fenced import FencedWriter
from controlplane.store.transaction import Compare, Item, absent, delete, mod_is, put

_USED_SECONDS = 1.0
_AT_ONCE = 200


class Targets:
    name = "targets"

    def __init__(self, ledgers: Ledgers, writer: FencedWriter, clock: Clock) -> None:
        self._ledgers = ledgers
        self._writer = writer
        self._clock = clock
        self._gone_since: dict[str, float] = {}
        self._written: dict[str, float] = {}
        # Lost targets that kept holders: a person's word about one of their orders concerns them.
        self._keeping: set[str] = set()

    def every_key(self) -> Iterable[str]:
        snapshot = self._ledgers.cache.snapshot
        return {*snapshot.names("config/targets"), *snapshot.names("status/targets"), *snapshot.names("desired")}

    def concerned(self, touched: Touched) -> Iterable[str]:
        """New settings may mean new times for all of them."""
        for key in touched.targets:
            self._silent_since(key)
        if "config" in touched.config:
            return self.every_key()
        return {*touched.targets, *self._keeping} if self._keeping and touched.orders else touched.targets

    async def reconcile(self, key: str) -> Again | None:
        began, settings = self._clock.monotonic(), settings_of(self._ledgers.cache.snapshot)
        sight = self._look(key, settings)
        made_again = sight.target is not None and sight.phase == TargetPhase.GONE
        if made_again or (sight.target is None and not sight.placed):
            self._forget(key)
            return await self._remove(key, sight)
        phase = phase_of(sight)
        record = self._record(key, sight, phase)
        first, again = ([record], None) if isinstance(record, Item) else ([], record)
        if sight.lost and (phase == TargetPhase.FAILED or sight.target is None):
            return await self._give_back(key, sight, first)
        await self._write(first)
        self._keeping.discard(key)
        due = leaving.evicts_in(sight, settings.drain_timeout, self._clock.wall())
        if due is not None and due <= 0:
            return await self._leave(leaving.evictions(self._placed(key), epoch=self._writer.epoch))
        return _soonest(again, due, _next_look(sight, since_look=self._clock.monotonic() - began))

    def _look(self, key: str, settings: Settings) -> Sight:
        snapshot = self._ledgers.cache.snapshot
        config, session = snapshot.get("config/targets", key), snapshot.get("inventory", key, keys.LIVE)
        status = snapshot.get("status/targets", key)
        before = status.sound(TargetStatus) if status is not None else None
        since, now = self._silent_since(key), self._clock.monotonic()
        # A session that cannot be read is one: whose it is, etcd knows by its lease.
        live = (session.sound(Live) or _unread(key)) if session is not None else None
        return Sight(
            # One that cannot be read is not deleted: it takes nothing new, and what it has stays.
            target=(config.sound(Target) or Target(name=key, cordoned=True)) if config is not None else None,
            live=live,
            placed=len(self._ledgers.target(key).fulfilments),
            before=before,
            silent=now - since if since is not None else 0.0,
            suspect=float(settings.target_suspect),
            grace=silence.grace_seconds(settings, float(before.stop_within) if before is not None else 0.0),
        )

    def _silent_since(self, key: str) -> float | None:
        """When the session was first seen to be gone: counts from the change, however long the look at it waits."""
        if self._ledgers.cache.snapshot.get("inventory", key, keys.LIVE) is not None:
            self._gone_since.pop(key, None)
            return None
        return self._gone_since.setdefault(key, self._clock.monotonic())

    def _record(self, key: str, sight: Sight, phase: TargetPhase) -> Item | Again | None:
        """What to write: phases at once, room at most once a second; what was deleted keeps the phase that it had."""
        before, now = sight.before, self._now()
        if sight.target is None:
            return None
        used, free = self._room(key)
        status = TargetStatus(
            target=key,
            epoch=self._writer.epoch,
            phase=phase,
            reason=reason_of(sight, phase),
            since=before.since if before is not None and before.phase == phase else now,
            used=used,
            free=free,
            drain_since=((before.drain_since if before is not None else "") or now) if sight.target.drain else "",
            stop_within=_promised(sight),
            driver=sight.driver,
        )
        if before is not None and _same(status, before, room=True):
            return None
        if before is not None and _same(status, before, room=False):
            left = self._written.get(key, 0.0) + _USED_SECONDS - self._clock.monotonic()
            if left > 0:
                return Again(after_seconds=left)
        self._written[key] = self._clock.monotonic()
        compares = (self._unchanged(key), absent(keys.live(key))) if sight.lost else (self._unchanged(key),)
        return Item(compares=compares, then=(put(keys.target_status(key), codec.encode(status)),))

    async def _remove(self, key: str, sight: Sight) -> Again | None:
        """Gone, then away: whoever watches hears of both."""
        if sight.before is None:
            return None
        place = keys.target_status(key)
        if sight.phase == TargetPhase.GONE:
            await self._write([Item(compares=(self._unchanged(key),), then=(delete(place),))])
            return None
        gone = TargetStatus(target=key, epoch=self._writer.epoch, phase=TargetPhase.GONE, since=self._now())
        await self._write([Item(compares=(self._unchanged(key),), then=(put(place, codec.encode(gone)),))])
        return Again(after_seconds=0)

    async def _give_back(self, key: str, sight: Sight, first: list[Item]) -> Again | None:
        """Together with the record, one way to etcd and back less: all of it compares that no session is there."""
        placed = list(self._placed(key))
        kept = holders.kept(placed, sight)
        (self._keeping.add if kept else self._keeping.discard)(key)
        given = ((live, ledger) for live, ledger in placed if live.fulfilment.id not in kept)
        await self._leave(leaving.losses(given, epoch=self._writer.epoch, now=self._now()), first)
        return _soonest(None, *kept.values())

    def _forget(self, key: str) -> None:
        self._keeping.discard(key)
        self._gone_since.pop(key, None)
        self._written.pop(key, None)

    def _unchanged(self, key: str) -> Compare:
        entry = self._ledgers.cache.snapshot.get("status/targets", key)
        return mod_is(keys.target_status(key), entry.revision if entry is not None else 0)

    def _room(self, key: str) -> tuple[dict[str, Number], dict[str, Number]]:
        row = row_of(key, self._ledgers.cache.snapshot, self._ledgers)
        if row is None:
            return {}, {}
        free = dict(row.free)
        return {name: row.capacity[name] - amount for name, amount in free.items()}, free

    def _placed(self, key: str) -> leaving.Placed:
        return leaving.placed_on(key, self._ledgers)

    async def _leave(self, items: Iterable[Item], first: Iterable[Item] = ()) -> Again | None:
        """Some at a time; each is heard of as a change of the target, which asks for the rest."""
        await self._write([*first, *islice(items, _AT_ONCE)])
        return None

    async def _write(self, items: list[Item]) -> None:
        if not items:
            return
        outcomes = await self._writer.write_all(items)
        await self._ledgers.cache.reached(max(outcome.revision for outcome in outcomes))
        if not all(outcome.succeeded for outcome in outcomes):
            raise Conflict("the target moved on meanwhile")

    def _now(self) -> str:
        return times.show(self._clock.wall())


def _unread(key: str) -> Live:
    return Live(target=key, session="", instance="", secret_digest="", driver="")


def _promised(sight: Sight) -> Number:
    """What the session that is there was promised, or the last one that was."""
    if sight.live is not None and sight.live.session:
        return sight.live.stop_within
    return sight.before.stop_within if sight.before is not None else 0


def _same(status: TargetStatus, before: TargetStatus, *, room: bool) -> bool:
    """Whether it says the same; without `room`, of all but what is used and free."""
    like = replace(status, epoch=before.epoch, since=before.since)
    return (like if room else replace(like, used=before.used, free=before.free)) == before


def _next_look(sight: Sight, *, since_look: float) -> float | None:
    """When silence alone changes something: it is Suspect, then lost. What was written since the look took time too."""
    if sight.live is not None or (sight.phase == TargetPhase.PROVISIONING and not sight.placed):
        return None
    left = next((time - sight.silent for time in (sight.suspect, sight.grace) if time > sight.silent), None)
    return max(0.0, left - since_look) if left is not None else None


def _soonest(again: Again | None, *seconds: float | None) -> Again | None:
    times = [after for after in (again.after_seconds if again is not None else None, *seconds) if after is not None]
    return Again(after_seconds=min(times)) if times else None
