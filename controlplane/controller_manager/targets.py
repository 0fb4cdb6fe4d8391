"""Targets: Ready while their joblet's session lives, Suspect when it ended, Failed after the grace time.

On Failed, the work of the target is given back: every unfinished attempt there ends as TargetLost. The grace time is
counted on the leader's own monotonic clock from when it saw the session gone; a new leader counts anew, which is late
but never early. It is not below the time within which holders of unique resources are dead (settings are checked
for that), so claims go with the attempts.
"""

from __future__ import annotations

from collections.abc import Iterable

from controlplane.aio.clock import Clock
from controlplane.cache.ledger import LiveFulfilment
from controlplane.cache.ledgers import Ledgers, Touched
from controlplane.cache.settings import settings_of
from controlplane.controller_manager import release
from controlplane.controller_manager.runner import Again
from controlplane.engine.world import row_of
from controlplane.model import times
from controlplane.model.errors import Conflict
from controlplane.model.fulfilment import Fulfilment, Observed
from controlplane.model.lifecycle import TargetPhase
from controlplane.model.quantity import Number
from controlplane.model.settings import Settings
from controlplane.model.target import Live, Target, TargetStatus
from controlplane.store import codec, keys
from controlplane.store.fenced import FencedWriter
from controlplane.store.transaction import Item, delete, mod_is, put

_USED_SECONDS = 1.0
_LOST_AT_ONCE = 200


class Targets:
    name = "targets"

    def __init__(self, ledgers: Ledgers, writer: FencedWriter, clock: Clock) -> None:
        self._ledgers = ledgers
        self._writer = writer
        self._clock = clock
        self._gone_since: dict[str, float] = {}
        self._written: dict[str, float] = {}
        self._stop_within: dict[str, Number] = {}

    def every_key(self) -> Iterable[str]:
        snapshot = self._ledgers.cache.snapshot
        return {*snapshot.names("config/targets"), *snapshot.names("status/targets"), *snapshot.names("desired")}

    def concerned(self, touched: Touched) -> Iterable[str]:
        return touched.targets

    async def reconcile(self, key: str) -> Again | None:
        snapshot = self._ledgers.cache.snapshot
        entry = snapshot.get("config/targets", key)
        target = entry.sound(Target) if entry is not None else None
        session = snapshot.get("inventory", key, keys.LIVE)
        live = session is not None
        left = self._grace_left(key, session.sound(Live) if session is not None else None, settings_of(snapshot))
        before = self._stored(key)
        phase = phase_of(target, live=live, grace_left=left, before=before.phase if before else None)
        again = await self._report(key, target, phase, before)
        if left <= 0 and not live and (phase == TargetPhase.FAILED or target is None):
            await self._give_back(key)
        if not live and left > 0 and (before is not None or self._ledgers.target(key).fulfilments):
            return Again(after_seconds=left)
        return again

    def _grace_left(self, key: str, live: Live | None, settings: Settings) -> float:
        """How long its work stays its own; not less than its joblet was promised for stopping holders."""
        if live is not None:
            self._gone_since.pop(key, None)
            self._stop_within[key] = live.stop_within
            return float(settings.target_grace)
        now = self._clock.monotonic()
        grace = max(settings.target_grace, settings.kill_grace, self._stop_within.get(key, 0))
        return self._gone_since.setdefault(key, now) + grace - now

    async def _report(
        self, key: str, target: Target | None, phase: TargetPhase, before: TargetStatus | None
    ) -> Again | None:
        place = keys.target_status(key)
        revision = entry.revision if (entry := self._ledgers.cache.snapshot.get("status/targets", key)) else 0
        if target is None:
            if before is not None and not self._ledgers.target(key).fulfilments:
                await self._write([Item(compares=(mod_is(place, revision),), then=(delete(place),))])
            return None
        used, free = self._room(key)
        if before is not None and (before.phase, before.used, before.free) == (phase, used, free):
            return None
        if before is not None and before.phase == phase:
            left = self._written.get(key, 0.0) + _USED_SECONDS - self._clock.monotonic()
            if left > 0:
                return Again(after_seconds=left)
        now = times.show(self._clock.wall())
        since = before.since if before is not None and before.phase == phase else now
        status = TargetStatus(target=key, epoch=self._writer.epoch, phase=phase, since=since, used=used, free=free)
        self._written[key] = self._clock.monotonic()
        await self._write([Item(compares=(mod_is(place, revision),), then=(put(place, codec.encode(status)),))])
        return None

    def _room(self, key: str) -> tuple[dict[str, Number], dict[str, Number]]:
        row = row_of(key, self._ledgers.cache.snapshot, self._ledgers)
        if row is None:
            return {}, {}
        free = dict(row.free)
        return {name: row.capacity[name] - amount for name, amount in free.items()}, free

    async def _give_back(self, key: str) -> None:
        """Ends what the lost target carried, some at a time; asked again until nothing is left."""
        snapshot = self._ledgers.cache.snapshot
        now = times.show(self._clock.wall())
        items: list[Item] = []
        for entry in snapshot.all("desired", key):
            fulfilment = entry.sound(Fulfilment)
            if fulfilment is None:
                continue
            seen = snapshot.get("inventory", key, fulfilment.id)
            live = LiveFulfilment(fulfilment, entry.revision)
            if seen is not None:
                live.observed, live.observed_revision = seen.sound(Observed), seen.revision
            ledger = self._ledgers.orders.get(fulfilment.order)
            cancelled = ledger is None or ledger.order.cancel
            epoch = self._writer.epoch
            lost = release.ended_by_loss(live, "TargetLost", cancelled=cancelled, epoch=epoch, now=now, ledger=ledger)
            items.append(lost.item)
            if len(items) == _LOST_AT_ONCE:
                break
        await self._write(items)

    async def _write(self, items: list[Item]) -> None:
        if not items:
            return
        outcomes = await self._writer.write_all(items)
        await self._ledgers.cache.reached(max(outcome.revision for outcome in outcomes))
        if not all(outcome.succeeded for outcome in outcomes):
            raise Conflict("the target moved on meanwhile")

    def _stored(self, key: str) -> TargetStatus | None:
        entry = self._ledgers.cache.snapshot.get("status/targets", key)
        return entry.sound(TargetStatus) if entry is not None else None


def phase_of(target: Target | None, *, live: bool, grace_left: float, before: str | None) -> TargetPhase:
    """The target's phase. One that never had a joblet is Provisioning; one that lost it is Suspect, then Failed."""
    if target is None:
        return TargetPhase.GONE
    if not live:
        if before in (None, TargetPhase.PROVISIONING):
            return TargetPhase.PROVISIONING
        return TargetPhase.SUSPECT if grace_left > 0 and before != TargetPhase.FAILED else TargetPhase.FAILED
    if target.cordoned:
        return TargetPhase.CORDONED
    return TargetPhase.READY
