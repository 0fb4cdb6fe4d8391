"""Scaling: makes the number and the size of a policy's targets follow the load.

Looks, asks the plan, and writes intents: `status/made/<target>`, and the action in `status/scaling/<policy>`, in a
single transaction. `made_targets` follows the intents and asks providers. Cool-down, idle times and waits count on the
leader's own monotonic clock; a new leader counts anew, which is late but never early.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

import structlog

from controlplane.aio.clock import Clock
from controlplane.cache.ledgers import Ledgers, Touched
from controlplane.controller_manager.controller_writer import ControllerWriter
from controlplane.controller_manager.runner import Again
from controlplane.controller_manager.scaling_demand import Demand, EligibleWork
from controlplane.controller_manager.scaling_plan import (
    Action,
    MadeTargetView,
    PolicyView,
    next_seconds,
    plan,
    smaller_size,
)
from controlplane.controller_manager.scaling_writes import MOST_AT_ONCE, ScalingRecords, item_of
from controlplane.model import times
from controlplane.model.scalepolicy import Made, Metric, ScalePolicy, Scaling
from controlplane.store import keys
from controlplane.store.transaction import Item, delete, mod_is

log = structlog.get_logger(__name__)

# A policy is looked at after a change, and after that no sooner than this.
_PAUSE_SECONDS = 0.5
_TREES = (keys.SCALE_POLICIES, keys.MADE, keys.SCALING)


class _Since(NamedTuple):
    """Since when a condition holds, and the version of the target's ledger at that time."""

    moment: float
    version: int


class ScalingController:
    name = "scaling"
    kind = "ScalePolicy"

    def __init__(
        self, ledgers: Ledgers, writer: ControllerWriter, clock: Clock, make_identity: Callable[[], str]
    ) -> None:
        self._ledgers = ledgers
        self._writer = writer
        self._clock = clock
        self._make_identity = make_identity
        self._demand: Demand | None = None
        self._takers: dict[str, tuple[int, EligibleWork]] = {}
        self._acted: dict[str, tuple[str, float]] = {}
        self._timers: dict[tuple[str, str], _Since] = {}
        # The number of changes so far, the number at the last look of each policy, and policies that come back soon.
        self._heard = 0
        self._seen: dict[str, int] = {}
        self._pausing: set[str] = set()

    def every_key(self) -> Iterable[str]:
        snapshot = self._ledgers.cache.snapshot
        policies = {made.policy for made in snapshot.objects(keys.MADE)}
        return policies.union(snapshot.names(keys.SCALE_POLICIES), snapshot.names(keys.SCALING))

    def keys_affected_by(self, touched: Touched) -> Iterable[str]:
        snapshot = self._ledgers.cache.snapshot
        if not any(snapshot.count(tree) for tree in _TREES):
            self._demand = None
            return ()
        if self._demand is not None:
            self._demand.touch(touched.orders)
        self._heard += 1
        # Changes by users are looked at immediately, the coming and going of work when its time comes.
        urgent = not touched.config.isdisjoint(_TREES)
        return [key for key in self.every_key() if urgent or key not in self._pausing]

    async def reconcile(self, key: str) -> Again | None:
        fresh, self._seen[key] = self._seen.get(key) != self._heard, self._heard
        self._pausing.discard(key)
        view, records = self._look(key)
        actions = plan(view)[:MOST_AT_ONCE]
        if actions:
            await self._write(key, records, actions)
        elif view.policy is None and not view.places:
            await self._forget(key, records)
            return None
        if fresh or actions:
            self._pausing.add(key)
            return Again(after_seconds=_PAUSE_SECONDS)
        seconds = [some for some in (next_seconds(view), self._next_ready()) if some is not None]
        return Again(after_seconds=min(seconds)) if seconds else None

    def _look(self, key: str) -> tuple[PolicyView, ScalingRecords]:
        snapshot = self._ledgers.cache.snapshot
        entry = snapshot.get(keys.SCALE_POLICIES, key)
        policy = entry.readable() if entry is not None else None
        status = snapshot.get(keys.SCALING, key)
        scaling = status.readable() if status is not None else None
        made = {
            record.parts[0]: (intent, record.revision)
            for record in snapshot.all(keys.MADE)
            if (intent := record.readable()) is not None and intent.policy == key
        }
        records = ScalingRecords(policy, scaling, status.revision if status is not None else 0, made)
        places = [self._place(intent, policy) for intent, _ in made.values()]
        waiting, waited = 0, 0.0
        if policy is not None and entry is not None:
            waiting, waited = self._load(policy, entry.revision)
        return PolicyView(policy, places, waiting, waited, self._acted_seconds(key, scaling)), records

    def _load(self, policy: ScalePolicy, revision: int) -> tuple[int, float]:
        now = self._clock.monotonic()
        if self._demand is None:
            self._demand = Demand(self._ledgers)
        self._demand.look(self._clock.wall(), now)
        eligible = self._takers.get(policy.name)
        if eligible is None or eligible[0] != revision:
            eligible = self._takers[policy.name] = (revision, EligibleWork(policy))
        waiting = self._demand.waiting(eligible[1])
        timed = policy.metric == Metric.WAIT and waiting
        return waiting, self._demand.waited_seconds(eligible[1], now) if timed else 0.0

    def _place(self, made: Made, policy: ScalePolicy | None) -> MadeTargetView:
        snapshot, name = self._ledgers.cache.snapshot, made.target
        ledger = self._ledgers.target(name)
        seen = MadeTargetView(
            made=made,
            known=snapshot.has(keys.TARGETS, name),
            live=snapshot.has(keys.INVENTORY, name, keys.LIVE),
            busy=len(ledger.fulfilments),
            used=dict(ledger.used),
        )
        return MadeTargetView(
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

    def _held(self, target: str, condition: str, holds: bool, version: int) -> float:
        """How long the condition has held, as far as this leader saw."""
        if not holds:
            self._timers.pop((target, condition), None)
            return 0.0
        now = self._clock.monotonic()
        since = self._timers.get((target, condition))
        if since is None or since.version != version:
            since = self._timers[target, condition] = _Since(now, version)
        return now - since.moment

    def _acted_seconds(self, key: str, scaling: Scaling | None) -> float:
        if scaling is None or not scaling.acted:
            return float("inf")
        now = self._clock.monotonic()
        acted = self._acted.get(key)
        if acted is None or acted[0] != scaling.acted:
            acted = self._acted[key] = (scaling.acted, now)
        return now - acted[1]

    def _next_ready(self) -> float | None:
        moment = self._demand.next_time() if self._demand is not None else None
        if moment is None:
            return None
        return max(_PAUSE_SECONDS, (times.parse(moment, "moment") - self._clock.wall()).total_seconds())

    async def _write(self, key: str, records: ScalingRecords, actions: Sequence[Action]) -> None:
        now = times.show(self._clock.wall())
        item = item_of(
            key, records, actions, epoch=self._writer.epoch, now=now, make_identity=self._make_identity,
            taken=lambda name: self._ledgers.cache.snapshot.has(keys.TARGETS, name),
        )  # fmt: skip
        await self._writer.write([item])
        self._acted[key] = (now, self._clock.monotonic())
        for action in actions:
            log.info("scaling", policy=key, action=type(action).__name__.lower(), why=action.why)

    async def _forget(self, key: str, records: ScalingRecords) -> None:
        self._takers.pop(key, None)
        self._acted.pop(key, None)
        self._seen.pop(key, None)
        if records.scaling_revision:
            name = keys.scaling(key)
            unchanged = mod_is(name, records.scaling_revision)
            await self._writer.write([Item(compares=(unchanged,), then=(delete(name),))])
