"""The cycle: snapshot -> queues -> decide -> bind -> commit -> record.

Cycles are woken by changes and by moments computed in advance (an opening window, a `not_before` time), never by a
fixed sleep. A cycle is decided on a snapshot which contains every answered transaction of the cycle before. A new
leader always commits a first cycle, even an empty cycle; other cycles without changes are not written. An order or a
target which raises, at any point of a cycle, is left out of the cycle, put into the quarantine, and tried again in a
later cycle; a cycle which fails as a whole is begun again, with back-off, in the same term.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from itertools import chain

import msgspec
import structlog

from controlplane.aio.clock import Clock
from controlplane.aio.failpoint import Failpoints
from controlplane.aio.thread_team import DECISIONS
from controlplane.cache.ledgers import Ledgers, Touched
from controlplane.engine import decide as engine
from controlplane.engine.decision import Decision
from controlplane.engine.guarding import decide_guarded
from controlplane.engine.reason_codes import QUEUED
from controlplane.engine.rules.book import Book
from controlplane.engine.world import World
from controlplane.model import times
from controlplane.model.errors import Invalid, OutcomeUnknown, Unavailable
from controlplane.model.isolation import Casualties
from controlplane.model.leadership import Cycle
from controlplane.quarantine import Quarantine, ends_term
from controlplane.scheduler.binder import Binder, Stamp
from controlplane.scheduler.moments import Moments
from controlplane.store import codec, keys
from controlplane.store.fenced import FencedWriter
from controlplane.store.transaction import Item, Outcome, put
from controlplane.survey.backlog import Backlog
from controlplane.survey.standing_survey import Survey

log = structlog.get_logger(__name__)

# Changes of these trees can make room or change which tasks may be placed.
_MAKES_ROOM = frozenset({keys.CLAIMS, keys.CONFIG, keys.RULES, keys.CLUSTER_STATUS.name})
_RETRY_SECONDS = 1.0
_AT_ONCE = 20
# Beyond so many queues x targets, a decision takes long enough to delay requests to this replica.
_LARGE = 20_000
# Moments are written in milliseconds: an alarm must not ring before the moment for which it was set.
_ROUNDING_SECONDS = 0.001
_LONGEST_SECONDS = 24 * 3600.0
# At most so many of the orders and targets left out by a cycle are named in the record of the cycle.
_MOST_NAMED = 1000
_MANY = 500
PART = "scheduler"
RULES = "rules"


class Scheduler:
    """The scheduler of a single term."""

    def __init__(
        self,
        ledgers: Ledgers,
        writer: FencedWriter,
        clock: Clock,
        *,
        make_identity: Callable[[], str],
        failpoints: Failpoints,
        quarantine: Quarantine | None = None,
        survey: Survey | None = None,
    ) -> None:
        """`survey`: the survey of the replica, which knows the waiting orders; without a survey, every order is looked
        at first."""
        self._quarantine = quarantine or Quarantine(clock)
        self._ward = self._quarantine.ward(PART)
        self._ledgers = ledgers
        self._cache = ledgers.cache
        self._writer = writer
        self._clock = clock
        self._failpoints = failpoints
        self._survey = survey or Survey(ledgers, clock)
        self._moments = Moments(self._ward, self._wake_soon)
        self._book: Book | None = None
        self._alarm: asyncio.TimerHandle | None = None
        self._retry: asyncio.TimerHandle | None = None
        self._binder = Binder(ledgers, make_identity, self._ward)
        self._wake = asyncio.Event()
        # Set when the first cycle is over: other work of the leader may wait for the first cycle.
        self.begun = asyncio.Event()

    @property
    def _backlog(self) -> Backlog:
        return self._survey.backlog

    async def run(self) -> None:
        """Runs cycles until cancelled; Deposed ends the term."""
        unsubscribe = self._ledgers.subscribe(self._hear)
        self._survey.begin(self._ward)
        try:
            n, first = last_cycle(self._ledgers), True
            self._wake.set()
            while True:
                await self._wake.wait()
                self._wake.clear()
                if await self._supervised(n + 1, first=first):
                    n, first = n + 1, False
                self.begun.set()
        finally:
            unsubscribe()
            self._survey.end()
            self._set_alarm(None)
            self._set_retry(None)
            self._moments.close()

    def _hear(self, touched: Touched) -> None:
        if touched.orders or touched.targets or touched.config & _MAKES_ROOM:
            self._wake.set()

    def _wake_soon(self) -> None:
        self._wake.set()

    async def _supervised(self, n: int, *, first: bool) -> bool:
        """Runs a cycle; whether the cycle was written. A failure of the whole cycle does not end the term: the survey
        is renewed, and every order is looked at again."""
        started, failures = self._clock.monotonic(), self._quarantine.failures
        try:
            written = await self._cycle(n, first=first)
        except Exception as error:
            if ends_term(error):
                raise
            if isinstance(error, OutcomeUnknown | Unavailable):
                # etcd, or this replica's view of etcd, is unavailable: no order is to blame, and the cycle is tried
                # again soon.
                log.warning("a cycle was not committed whole", error=str(error))
                seconds = _RETRY_SECONDS
            else:
                seconds = self._quarantine.failed(PART, "Cluster", "cycle", error)
            self._survey.renew()
            await self._clock.sleep(seconds)
            self._wake.set()
            return False
        self._quarantine.passed(PART, "Cluster", "cycle")
        self._quarantine.took_part(PART, started)
        self._set_retry(self._quarantine.next_seconds(PART))
        if self._quarantine.failures != failures:
            # The room meant for the orders which failed is available to other orders.
            self._wake.set()
        return written

    async def _cycle(self, n: int, *, first: bool) -> bool:
        """Runs a cycle; whether the cycle was written."""
        self._hurry()
        await self._survey.catch_up(self._clock.wall(), self._rules())
        started = self._clock.monotonic()
        # Rounded as in the record of the cycle, so that a replay sees the same time.
        now = times.parse(times.show(self._clock.wall()), "now")
        self._backlog.update(self._to_look_at(), now, self._rules())
        if not self._backlog.waits() and not first and not self._cache.snapshot.count(keys.PREEMPTIONS):
            self._wake_at(self._backlog.next_time(), now)
            return False
        seen = self._survey.builder.build(now, spread_orders=self._backlog.apart, preempting=self._backlog.preempting)
        self._backlog.leave_out(self._isolated("Order", started))
        world, decision = await self._decide(seen)
        self._wake_at(self._moments.next(world, self._backlog), now)
        if not decision.batches and not decision.evictions and not decision.used_rooms and not first:
            return False
        self._failpoints.reach("scheduler.before-commit")
        stamp = Stamp(self._writer.epoch, n, times.show(now), world.revision)
        orders, targets = self._isolated("Order", started), self._isolated("Target", started)
        record = msgspec.structs.replace(
            record_of(world, decision, stamp, self._clock.monotonic() - started),
            isolated=tuple(orders[:_MOST_NAMED]),
            isolated_targets=tuple(targets[:_MOST_NAMED]),
            isolated_total=len(orders),
        )
        with self._ledgers.sending.of({placement.order for placement in decision.placements}):
            await self._commit(
                chain(
                    self._binder.items(decision.placements, stamp),
                    self._binder.evictions(decision.evictions, stamp),
                    self._binder.used_rooms(decision.used_rooms),
                    (Item(then=(put(keys.cycle(record.epoch, n), codec.encode(record)),)),),
                )
            )
        self._failpoints.reach("scheduler.after-commit")
        if decision.refused.get(QUEUED):
            self._wake.set()
        return True

    def _to_look_at(self) -> set[str]:
        """The changed orders, and the isolated orders which are due for another try."""
        self._hurry()
        touched = self._survey.take()
        if self._quarantine.total:
            touched.update(self._quarantine.due(PART, "Order"))
        return touched

    def _hurry(self) -> None:
        """Lets isolated orders which changed be tried earlier, but not at once."""
        if self._quarantine.total:
            for order in self._survey.changed():
                self._quarantine.hurry(PART, "Order", order)

    def _isolated(self, kind: str, started: float) -> list[str]:
        """The names of the isolated orders or targets left out by the cycle which started at this time."""
        return self._quarantine.names(PART, kind, started)

    def _rules(self) -> Book:
        """The rules as stored now; broken rules count as not matching, and each broken rule is reported once."""
        book = self._survey.builder.book(self._cache.snapshot)
        if book is not self._book:
            before: Mapping[str, str] = self._book.broken if self._book is not None else {}
            self._book = book
            for name in before.keys() - book.broken.keys():
                self._quarantine.passed(RULES, "Rule", name)
            for name, why in book.broken.items() - before.items():
                self._quarantine.failed(RULES, "Rule", name, Invalid("when", why.removeprefix("when: ")))
        return book

    async def _decide(self, world: World) -> tuple[World, Decision]:
        """Decides the cycle. A large decision is made in a thread beside the loop: no input of the decision changes
        meanwhile. A decision which raised is repeated in the thread, to find the orders and targets which cause the
        error; the culprits are left out."""
        queues = self._backlog.queues()
        if len(queues) * len(world.targets) * world.book.weight < _LARGE:
            try:
                return world, engine.decide(world, queues)
            except Exception as failure:  # noqa: BLE001 - supervision: found out beside the loop
                log.warning("a decision failed, looking for its cause", error=str(failure))
        casualties = Casualties()
        try:
            decided = await DECISIONS.run(decide_guarded, world, self._backlog.queues, casualties)
        except asyncio.CancelledError:
            # The thread goes on reading the old backlog, so the backlog must not be changed: replace it.
            self._survey.renew()
            raise
        for position, ((kind, name), error) in enumerate(casualties.errors.items()):
            self._ward.failed(kind, name, error)
            if position % _MANY == _MANY - 1:
                await asyncio.sleep(0)
        self._backlog.leave_out(casualties.orders)
        return decided

    def _wake_at(self, moment: str | None, now: datetime) -> None:
        if moment is None:
            self._set_alarm(None)
        else:
            seconds = (times.parse(moment, "moment") - now).total_seconds()
            self._set_alarm(min(max(0.0, seconds), _LONGEST_SECONDS) + _ROUNDING_SECONDS)

    def _set_alarm(self, seconds: float | None) -> None:
        if self._alarm is not None:
            self._alarm.cancel()
        self._alarm = None
        if seconds is not None:
            self._alarm = asyncio.get_running_loop().call_later(seconds, self._wake.set)

    def _set_retry(self, seconds: float | None) -> None:
        """Sets the timer which wakes the next cycle when an isolated order or target may be tried again."""
        if self._retry is not None:
            self._retry.cancel()
        self._retry = None
        if seconds is not None:
            self._retry = asyncio.get_running_loop().call_later(seconds + _ROUNDING_SECONDS, self._wake.set)

    async def _send(self, items: Iterable[Item]) -> tuple[list[tuple[Item, Outcome | BaseException]], Exception | None]:
        """Sends the items. The first items are under way while the last items are being built, and requests to this
        replica are answered in between.

        An error while building items is returned beside the outcomes of the items sent by then.
        """
        sent: list[Item] = []
        writes: list[asyncio.Future[Outcome]] = []
        broken: Exception | None = None
        try:
            try:
                for item in items:
                    sent.append(item)
                    writes.append(asyncio.ensure_future(self._write(item)))
                    if len(writes) % _AT_ONCE == 0:
                        await asyncio.sleep(0)
            except Exception as error:  # noqa: BLE001 - raised by who waits for the outcomes
                broken = error
            return list(zip(sent, await asyncio.gather(*writes, return_exceptions=True), strict=True)), broken
        except asyncio.CancelledError:
            for write in writes:
                write.cancel()
            raise

    async def _write(self, item: Item) -> Outcome:
        outcome = await self._writer.write(item)
        if not outcome.succeeded:
            self._binder.refused(item)
        return outcome

    async def _commit(self, items: Iterable[Item]) -> None:
        """Sends all items and waits until the cache contains every answered item, so that the next cycle sees them."""
        outcomes, broken = await self._send(items)
        answered = [outcome for _, outcome in outcomes if isinstance(outcome, Outcome)]
        refused = sum(not outcome.succeeded for outcome in answered)
        if refused:
            log.warning("placements were refused by their compares, deciding again", refused=refused)
            self._wake.set()
        if answered:
            await self._shown(max(outcome.revision for outcome in answered))
        for item, failure in outcomes:
            if isinstance(failure, OutcomeUnknown | Unavailable):
                # The cache now shows whether the write was applied; decide again on the cache.
                log.warning("a cycle was not committed whole", error=str(failure))
                self._survey.look_at_all()
                asyncio.get_running_loop().call_later(_RETRY_SECONDS, self._wake.set)
            elif isinstance(failure, BaseException):
                self._not_written(item, failure)
        if broken is not None:
            raise broken

    async def _shown(self, revision: int) -> None:
        """Returns when the cache shows the revision, however late: a cycle decided without the placements of the cycle
        before would place the same attempts again. So a leader with a stale cache decides no cycle."""
        while True:
            try:
                await self._cache.reached(revision)
                return
            except Unavailable as error:
                log.warning("the picture does not show the own placements yet", error=str(error))
                await self._clock.sleep(_RETRY_SECONDS)

    def _not_written(self, item: Item, failure: BaseException) -> None:
        """Handles an item which certainly was not applied: the orders of the item go on waiting."""
        if not isinstance(failure, Exception) or ends_term(failure):
            raise failure
        if len(item.about) > 1:
            # Which order is at fault shows when each order travels alone.
            log.warning("placements were not written, each is tried alone", error=str(failure))
            self._binder.refused(item)
            self._survey.look_at(item.about)
            self._wake.set()
            return
        for order in item.about:
            self._ward.failed("Order", order, failure)
        self._backlog.leave_out(item.about)
        if not item.about:
            self._quarantine.failed(PART, "Cluster", "record of the cycle", failure)


def record_of(world: World, decision: Decision, stamp: Stamp, seconds: float) -> Cycle:
    return Cycle(
        epoch=stamp.epoch,
        n=stamp.cycle,
        revision=world.revision,
        now=stamp.now,
        seed=0,
        settings_digest=hashlib.sha256(codec.encode(world.settings)).hexdigest()[:16],
        engine=engine.VERSION,
        considered=decision.considered,
        placed=decision.placed(),
        refused=decision.refused,
        seconds=round(seconds, 6),
        hash=decision.digest(),
        waiting=decision.waiting,
    )


def last_cycle(ledgers: Ledgers) -> int:
    """The number of the newest cycle on record; 0 before the first cycle. Unreadable records are skipped, and so are
    records with a cycle number above their revision: each cycle is a write."""
    for entry in sorted(ledgers.cache.snapshot.all(keys.CYCLES), key=lambda entry: entry.parts[1], reverse=True):
        cycle = entry.readable()
        if cycle is not None and cycle.n <= entry.revision:
            return cycle.n
    return 0
