"""Scaling: makes the number and the size of a policy's targets follow the load.

Looks, asks the plan, and writes intents: `status/made/<target>` and what was done in `status/scaling/<policy>`, in one
transaction. Providers are asked by `scaling_made`, which follows those intents. Cool-down, idle times and waits are
counted on the leader's own monotonic clock; a new leader counts anew, which is late but never early.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

import structlog

from controlplane.aio.clock import Clock
from controlplane.cache.ledgers import Ledgers, Touched
from controlplane.controller_manager.runner import Again
from controlplane.controller_manager.scaling_demand import Demand, Taker
from controlplane.controller_manager.scaling_plan import Action, Place, Sight, next_seconds, plan, smaller_size
from controlplane.controller_manager.scaling_writes import MOST_AT_ONCE, Records, item_of
from controlplane.model import times
from controlplane.model.errors import Conflict
from controlplane.model.scalepolicy import Made, Metric, ScalePolicy, Scaling
from controlplane.store import keys
from controlplane.store.fenced import FencedWriter
from controlplane.store.transaction import Item, delete, mod_is

log = structlog.get_logger(__name__)

# A policy is looked at when something changes, and after that no sooner than this.
_PAUSE_SECONDS = 0.5
_TREES = ("config/scalepolicies", "status/made", "status/scaling")


class _Since(NamedTuple):
    """Since when something holds, and the state of the target's ledger that it was seen in."""

    moment: float
    version: int


class ScalingController:
    name = "scaling"

    def __init__(self, ledgers: Ledgers, writer: FencedWriter, clock: Clock, make_identity: Callable[[], str]) -> None:
        self._ledgers = ledgers
        self._writer = writer
        self._clock = clock
        self._make_identity = make_identity
        self._demand: Demand | None = None
        self._takers: dict[str, tuple[int, Taker]] = {}
        self._acted: dict[str, tuple[str, float]] = {}
        self._timers: dict[tuple[str, str], _Since] = {}
        # What was heard in all, what each policy had heard when it was last looked at, and those that come back soon.
        self._heard = 0
        self._seen: dict[str, int] = {}
        self._pausing: set[str] = set()

    def every_key(self) -> Iterable[str]:
        snapshot = self._ledgers.cache.snapshot
        made = (entry.sound(Made) for entry in snapshot.all("status/made"))
        owners = {one.policy for one in made if one is not None}
        return owners.union(snapshot.names("config/scalepolicies"), snapshot.names("status/scaling"))

    def concerned(self, touched: Touched) -> Iterable[str]:
        snapshot = self._ledgers.cache.snapshot
        if not any(snapshot.count(tree) for tree in _TREES):
            self._demand = None
            return ()
        if self._demand is not None:
            self._demand.touch(touched.orders)
        self._heard += 1
        # What a user wrote is looked at at once, the coming and going of work when its time comes.
        urgent = not touched.config.isdisjoint(_TREES)
        return [key for key in self.every_key() if urgent or key not in self._pausing]

    async def reconcile(self, key: str) -> Again | None:
        fresh, self._seen[key] = self._seen.get(key) != self._heard, self._heard
        self._pausing.discard(key)
        sight, records = self._look(key)
        actions = plan(sight)[:MOST_AT_ONCE]
        if actions:
            await self._write(key, records, actions)
        elif sight.policy is None and not sight.places:
            await self._forget(key, records)
            return None
        if fresh or actions:
            self._pausing.add(key)
            return Again(after_seconds=_PAUSE_SECONDS)
        seconds = [some for some in (next_seconds(sight), self._next_ready()) if some is not None]
        return Again(after_seconds=min(seconds)) if seconds else None

    def _look(self, key: str) -> tuple[Sight, Records]:
        snapshot = self._ledgers.cache.snapshot
        entry = snapshot.get("config/scalepolicies", key)
        policy = entry.sound(ScalePolicy) if entry is not None else None
        status = snapshot.get("status/scaling", key)
        scaling = status.sound(Scaling) if status is not None else None
        made = {
            found.parts[0]: (one, found.revision)
            for found in snapshot.all("status/made")
            if (one := found.sound(Made)) is not None and one.policy == key
        }
        records = Records(policy, scaling, status.revision if status is not None else 0, made)
        places = [self._place(one, policy) for one, _ in made.values()]
        waiting, waited = 0, 0.0
        if policy is not None and entry is not None:
            waiting, waited = self._load(policy, entry.revision)
        return Sight(policy, places, waiting, waited, self._acted_seconds(key, scaling)), records

    def _load(self, policy: ScalePolicy, revision: int) -> tuple[int, float]:
        now = self._clock.monotonic()
        if self._demand is None:
            self._demand = Demand(self._ledgers)
        self._demand.look(self._clock.wall(), now)
        known = self._takers.get(policy.name)
        if known is None or known[0] != revision:
            known = self._takers[policy.name] = (revision, Taker(policy))
        waiting = self._demand.waiting(known[1])
        timed = policy.metric == Metric.WAIT and waiting
        return waiting, self._demand.waited_seconds(known[1], now) if timed else 0.0

    def _place(self, made: Made, policy: ScalePolicy | None) -> Place:
        snapshot, name = self._ledgers.cache.snapshot, made.target
        ledger = self._ledgers.target(name)
        seen = Place(
            made=made,
            known=snapshot.get("config/targets", name) is not None,
            live=snapshot.get("inventory", name, keys.LIVE) is not None,
            busy=len(ledger.fulfilments),
            used=dict(ledger.used),
        )
        return Place(
            made=made,
            known=seen.known,
            live=seen.live,
            busy=seen.busy,
            used=seen.used,
            idle_seconds=self._held(name, "idle", seen.up and not seen.busy, ledger.version),
            spare_seconds=self._held(
                name, "spare", policy is not None and seen.up and smaller_size(policy, seen) is not None, 0
            ),
            missing_seconds=self._held(name, "missing", not seen.live, 0),
        )

    def _held(self, target: str, what: str, holds: bool, version: int) -> float:
        """For how long it has held, as far as this leader saw."""
        if not holds:
            self._timers.pop((target, what), None)
            return 0.0
        now = self._clock.monotonic()
        since = self._timers.get((target, what))
        if since is None or since.version != version:
            since = self._timers[target, what] = _Since(now, version)
        return now - since.moment

    def _acted_seconds(self, key: str, scaling: Scaling | None) -> float:
        if scaling is None or not scaling.acted:
            return float("inf")
        now = self._clock.monotonic()
        known = self._acted.get(key)
        if known is None or known[0] != scaling.acted:
            known = self._acted[key] = (scaling.acted, now)
        return now - known[1]

    def _next_ready(self) -> float | None:
        moment = self._demand.next_time() if self._demand is not None else None
        if moment is None:
            return None
        return max(_PAUSE_SECONDS, (times.parse(moment, "moment") - self._clock.wall()).total_seconds())

    async def _write(self, key: str, records: Records, actions: Sequence[Action]) -> None:
        now = times.show(self._clock.wall())
        item = item_of(
            key, records, actions, epoch=self._writer.epoch, now=now, make_identity=self._make_identity,
            taken=lambda name: self._ledgers.cache.snapshot.get("config/targets", name) is not None,
        )  # fmt: skip
        await self._commit(item)
        self._acted[key] = (now, self._clock.monotonic())
        for action in actions:
            log.info("scaling", policy=key, action=type(action).__name__.lower(), why=action.why)

    async def _forget(self, key: str, records: Records) -> None:
        self._takers.pop(key, None)
        self._acted.pop(key, None)
        self._seen.pop(key, None)
        if records.scaling_revision:
            name = keys.scaling(key)
            await self._commit(Item(compares=(mod_is(name, records.scaling_revision),), then=(delete(name),)))

    async def _commit(self, item: Item) -> None:
        outcome = await self._writer.write(item)
        await self._ledgers.cache.reached(outcome.revision)
        if not outcome.succeeded:
            raise Conflict("what scaling looked at changed meanwhile")
