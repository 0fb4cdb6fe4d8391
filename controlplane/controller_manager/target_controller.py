"""The target controller: records the phases of targets, and gives back work that cannot stay on a target.

The grace time counts on the leader's own monotonic clock from when the leader saw the session gone; a new leader counts
anew, which is late but never early. The grace time is never shorter than the time within which holders of unique
resources are dead, so that claims go with the attempts; where holders are not killed, they stay until their end is
certain (`unique_holders`). The phase is written first: work leaves a target only when the reason is on record.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice

from msgspec.structs import replace

from controlplane.aio.clock import Clock
from controlplane.cache.effective_settings import settings_of
from controlplane.cache.ledgers import Ledgers, Touched
from controlplane.controller_manager import evictions_and_losses, unique_holders
from controlplane.controller_manager.controller_writer import ControllerWriter
from controlplane.controller_manager.runner import Again
from controlplane.controller_manager.target_phase import TargetState, phase_of, reason_of
from controlplane.engine.world import row_of
from controlplane.model import silence, times
from controlplane.model.lifecycle import TARGET, TargetPhase, follow
from controlplane.model.quantity import Number
from controlplane.model.settings import Settings
from controlplane.model.target import Live, Target, TargetStatus
from controlplane.store import codec, keys
from controlplane.store.transaction import Compare, Item, absent, delete, mod_is, put

_USED_SECONDS = 1.0
_AT_ONCE = 200


class TargetController:
    name = "targets"
    kind = "Target"

    def __init__(self, ledgers: Ledgers, writer: ControllerWriter, clock: Clock) -> None:
        self._ledgers = ledgers
        self._writer = writer
        self._clock = clock
        self._gone_since: dict[str, float] = {}
        self._written: dict[str, float] = {}
        # Lost targets that kept holders: a person's word about their orders concerns them.
        self._keeping: set[str] = set()

    def every_key(self) -> Iterable[str]:
        snapshot = self._ledgers.cache.snapshot
        return {*snapshot.names(keys.TARGETS), *snapshot.names(keys.TARGET_STATUS), *snapshot.names(keys.DESIRED)}

    def keys_affected_by(self, touched: Touched) -> Iterable[str]:
        """New settings may change the times of all targets."""
        for key in touched.targets:
            self._silent_since(key)
        if keys.CONFIG in touched.config:
            return self.every_key()
        return {*touched.targets, *self._keeping} if self._keeping and touched.orders else touched.targets

    async def reconcile(self, key: str) -> Again | None:
        began, settings = self._clock.monotonic(), settings_of(self._ledgers.cache.snapshot)
        state = self._look(key, settings)
        made_again = state.target is not None and state.phase == TargetPhase.GONE
        if made_again or (state.target is None and not state.placed):
            self._forget(key)
            return await self._remove(key, state)
        phase = phase_of(state)
        record = self._record(key, state, phase)
        first, again = ([record], None) if isinstance(record, Item) else ([], record)
        if state.lost and (phase == TargetPhase.FAILED or state.target is None):
            return await self._give_back(key, state, first)
        await self._writer.write(first)
        self._keeping.discard(key)
        due = evictions_and_losses.evicts_in(state, settings.drain_timeout, self._clock.wall())
        if due is not None and due <= 0:
            return await self._leave(evictions_and_losses.evictions(self._placed(key), epoch=self._writer.epoch))
        return _soonest(again, due, _next_look(state, since_look=self._clock.monotonic() - began))

    def _look(self, key: str, settings: Settings) -> TargetState:
        snapshot = self._ledgers.cache.snapshot
        config, session = snapshot.get(keys.TARGETS, key), snapshot.live_entry(key)
        before = snapshot.target_status(key)
        since, now = self._silent_since(key), self._clock.monotonic()
        # An unreadable session is still a session: etcd knows the joblet by the lease.
        live = (session.readable() or _unread(key)) if session is not None else None
        return TargetState(
            # An unreadable target is not deleted: it takes no new work, and keeps the work it has.
            target=(config.readable() or Target(name=key, cordoned=True)) if config is not None else None,
            live=live,
            placed=len(self._ledgers.target(key).fulfilments),
            before=before,
            silent=now - since if since is not None else 0.0,
            suspect=float(settings.target_suspect),
            grace=silence.grace_seconds(settings, float(before.stop_within) if before is not None else 0.0),
        )

    def _silent_since(self, key: str) -> float | None:
        """When the session was first seen to be gone: counts from the change, however late the look comes."""
        if self._ledgers.cache.snapshot.has(keys.INVENTORY, key, keys.LIVE):
            self._gone_since.pop(key, None)
            return None
        return self._gone_since.setdefault(key, self._clock.monotonic())

    def _record(self, key: str, state: TargetState, phase: TargetPhase) -> Item | Again | None:
        """The status to write: phases at once, room at most once a second. A deleted target keeps its phase."""
        before, now = state.before, self._now()
        if state.target is None:
            return None
        used, free = self._room(key)
        status = TargetStatus(
            target=key,
            epoch=self._writer.epoch,
            phase=phase,
            reason=reason_of(state, phase),
            since=before.since if before is not None and before.phase == phase else now,
            used=used,
            free=free,
            drain_since=((before.drain_since if before is not None else "") or now) if state.target.drain else "",
            stop_within=_promised(state),
            driver=state.driver,
        )
        if before is not None and _same(status, before, room=True):
            return None
        if before is not None and _same(status, before, room=False):
            left = self._written.get(key, 0.0) + _USED_SECONDS - self._clock.monotonic()
            if left > 0:
                return Again(after_seconds=left)
        self._written[key] = self._clock.monotonic()
        compares = (self._unchanged(key), absent(keys.live(key))) if state.lost else (self._unchanged(key),)
        return Item(compares=compares, then=(put(keys.target_status(key), codec.encode(status)),))

    async def _remove(self, key: str, state: TargetState) -> Again | None:
        """Records Gone, then deletes the record: watchers hear of both."""
        if state.before is None:
            return None
        place = keys.target_status(key)
        if state.phase == TargetPhase.GONE:
            await self._writer.write([Item(compares=(self._unchanged(key),), then=(delete(place),))])
            return None
        phase = follow(TARGET, state.phase, TargetPhase.GONE)
        gone = TargetStatus(target=key, epoch=self._writer.epoch, phase=phase, since=self._now())
        await self._writer.write([Item(compares=(self._unchanged(key),), then=(put(place, codec.encode(gone)),))])
        return Again(after_seconds=0)

    async def _give_back(self, key: str, state: TargetState, first: list[Item]) -> Again | None:
        """Written together with the phase, which saves a round trip: all items compare that no session exists."""
        placed = list(self._placed(key))
        kept = unique_holders.kept(placed, state)
        (self._keeping.add if kept else self._keeping.discard)(key)
        given = ((live, ledger) for live, ledger in placed if live.fulfilment.id not in kept)
        await self._leave(evictions_and_losses.losses(given, epoch=self._writer.epoch, now=self._now()), first)
        return _soonest(None, *kept.values())

    def _forget(self, key: str) -> None:
        self._keeping.discard(key)
        self._gone_since.pop(key, None)
        self._written.pop(key, None)

    def _unchanged(self, key: str) -> Compare:
        revision = self._ledgers.cache.snapshot.revision_of(keys.TARGET_STATUS, key)
        return mod_is(keys.target_status(key), revision)

    def _room(self, key: str) -> tuple[dict[str, Number], dict[str, Number]]:
        row = row_of(key, self._ledgers.cache.snapshot, self._ledgers)
        if row is None:
            return {}, {}
        free = dict(row.free)
        return {name: row.capacity[name] - amount for name, amount in free.items()}, free

    def _placed(self, key: str) -> evictions_and_losses.Placed:
        return evictions_and_losses.placed_on(key, self._ledgers)

    async def _leave(self, items: Iterable[Item], first: Iterable[Item] = ()) -> Again | None:
        """Some items at a time; each write is a change of the target, which asks for the rest."""
        await self._writer.write([*first, *islice(items, _AT_ONCE)])
        return None

    def _now(self) -> str:
        return times.show(self._clock.wall())


def _unread(key: str) -> Live:
    return Live(target=key, session="", instance="", secret_digest="", driver="")


def _promised(state: TargetState) -> Number:
    """The time promised to the current session, or to the last session."""
    if state.live is not None and state.live.session:
        return state.live.stop_within
    return state.before.stop_within if state.before is not None else 0


def _same(status: TargetStatus, before: TargetStatus, *, room: bool) -> bool:
    """Whether both say the same; without `room`, used and free quantities are left out."""
    like = replace(status, epoch=before.epoch, since=before.since)
    return (like if room else replace(like, used=before.used, free=before.free)) == before


def _next_look(state: TargetState, *, since_look: float) -> float | None:
    """When silence alone changes the target: Suspect, then lost. The time since the look counts, too."""
    if state.live is not None or (state.phase == TargetPhase.PROVISIONING and not state.placed):
        return None
    left = next((time - state.silent for time in (state.suspect, state.grace) if time > state.silent), None)
    return max(0.0, left - since_look) if left is not None else None


def _soonest(again: Again | None, *seconds: float | None) -> Again | None:
    times = [after for after in (again.after_seconds if again is not None else None, *seconds) if after is not None]
    return Again(after_seconds=min(times)) if times else None
