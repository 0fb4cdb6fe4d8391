"""The state at the newest revision read, as far as an order, placement or claim in it can be stuck.

The checks of stuck work look at this state, not at history: a step that is never taken leaves no revision. A key whose
value is no object of its tree counts as present and has no content.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from controlplane.model import silence
from controlplane.model.cluster import ClusterStatus
from controlplane.model.driver_traits import traits_of
from controlplane.model.fulfilment import Claim, Ended, Fulfilment, Observed
from controlplane.model.lifecycle import FINAL_ORDER
from controlplane.model.order import Order, OrderStatus
from controlplane.model.settings import DEFAULT, Settings
from controlplane.model.target import Live, TargetStatus
from controlplane.model.task import ENDED
from controlplane.store import keys
from controlplane.verify.history import KeyChange

Task = tuple[str, int]


@dataclass(frozen=True, slots=True)
class Accepted:
    """An order with its number of tasks. A `template` never runs itself; poison counts as a template."""

    revision: int
    tasks: int
    cancel: bool
    template: bool


@dataclass(frozen=True, slots=True)
class PlacedFulfilment:
    """A desired fulfilment with the revision of its key."""

    revision: int
    fulfilment: Fulfilment


@dataclass(frozen=True, slots=True)
class ReportState:
    """The report about a fulfilment; `over`: every attempt has ended."""

    revision: int
    over: bool


@dataclass(frozen=True, slots=True)
class Claimed:
    """A claim with the revision of its key."""

    revision: int
    claim: Claim


class Present:
    """Placements and reports are kept by the key of the placement, all else by name."""

    def __init__(self) -> None:
        self.revision = 0
        self.orders: dict[str, Accepted] = {}
        self.statuses: dict[str, OrderStatus] = {}
        self.placements: dict[str, PlacedFulfilment] = {}
        self.placed_of: defaultdict[str, set[str]] = defaultdict(set)
        self.desired: set[str] = set()
        self.reports: dict[str, ReportState] = {}
        self.claims: dict[str, Claimed] = {}
        self.targets: dict[str, TargetStatus] = {}
        self.sessions: dict[str, Live | None] = {}
        # For orders that are not final: the decision at the end of the newest attempt of each task.
        self.decisions: defaultdict[str, dict[Task, tuple[int, str]]] = defaultdict(dict)
        self.settings = DEFAULT
        self.restoring = False

    def start(self, state: Sequence[KeyChange]) -> None:
        for event in state:
            self._follow(event)

    def change(self, revision: int, changes: Sequence[KeyChange]) -> None:
        self.revision = revision
        for event in changes:
            self._follow(event)

    def is_over(self, order: str) -> bool:
        """Whether the order is final."""
        status = self.statuses.get(order)
        return status is not None and status.phase in FINAL_ORDER

    def grace_seconds(self, target: str) -> float | None:
        """How long attempts may outlive the target's session; None for a lost target whose driver kills no holders."""
        status = self.targets.get(target)
        if target not in self.sessions and status is not None and not traits_of(status.driver).kills_holders:
            return None
        stop_within = status.stop_within if status is not None else 0
        return silence.grace_seconds(silence.fitting(self.settings), float(stop_within))

    def _follow(self, event: KeyChange) -> None:
        self.revision = max(self.revision, event.revision)
        match event.tree:
            case keys.ORDERS:
                self._order(event)
            case keys.ORDER_STATUS:
                self._status(event)
            case keys.ENDED:
                self._ended(event)
            case keys.DESIRED:
                self._placement(event)
            case keys.INVENTORY:
                self._inventory(event)
            case keys.CLAIMS:
                self.claims.pop(event.parts[0], None)
                if isinstance(event.object, Claim):
                    self.claims[event.parts[0]] = Claimed(event.revision, event.object)
            case keys.TARGET_STATUS:
                self.targets.pop(event.parts[0], None)
                if isinstance(event.object, TargetStatus):
                    self.targets[event.parts[0]] = event.object
            case _:
                self._single(event)

    def _order(self, event: KeyChange) -> None:
        name, order = event.parts[0], event.object
        if isinstance(order, Order):
            template = order.schedule is not None
            self.orders[name] = Accepted(event.revision, order.tasks_total, order.cancel, template)
        elif not event.deleted:
            self.orders.setdefault(name, Accepted(event.revision, 0, cancel=False, template=True))
        else:
            self.orders.pop(name, None)
            self.decisions.pop(name, None)

    def _status(self, event: KeyChange) -> None:
        name = event.parts[0]
        self.statuses.pop(name, None)
        if isinstance(event.object, OrderStatus):
            self.statuses[name] = event.object
            if event.object.phase in FINAL_ORDER:
                self.decisions.pop(name, None)

    def _ended(self, event: KeyChange) -> None:
        ended = event.object
        if not isinstance(ended, Ended) or self.is_over(ended.order):
            return
        decisions = self.decisions[ended.order]
        for task in ended.tasks:
            attempt, _ = decisions.get((task.job, task.index), (0, ""))
            if task.attempt >= attempt:
                decisions[task.job, task.index] = task.attempt, task.decision

    def _placement(self, event: KeyChange) -> None:
        before = self.placements.pop(event.key, None)
        if before is not None:
            self._leave(before.fulfilment.order, event.key)
        (self.desired.discard if event.deleted else self.desired.add)(event.parts[1])
        if isinstance(event.object, Fulfilment):
            self.placements[event.key] = PlacedFulfilment(event.revision, event.object)
            self.placed_of[event.object.order].add(event.key)

    def _leave(self, order: str, key: str) -> None:
        self.placed_of[order].discard(key)
        if not self.placed_of[order]:
            del self.placed_of[order]

    def _inventory(self, event: KeyChange) -> None:
        target, name = event.parts
        if name == keys.LIVE:
            self.sessions.pop(target, None)
            if not event.deleted:
                self.sessions[target] = event.object if isinstance(event.object, Live) else None
            return
        key = keys.desired(target, name)
        self.reports.pop(key, None)
        if not event.deleted:
            tasks = event.object.tasks if isinstance(event.object, Observed) else ()
            over = bool(tasks) and all(task.phase in ENDED for task in tasks)
            self.reports[key] = ReportState(event.revision, over)

    def _single(self, event: KeyChange) -> None:
        if event.key == keys.SETTINGS:
            self.settings = event.object if isinstance(event.object, Settings) else DEFAULT
        elif event.key == keys.CLUSTER_STATUS:
            self.restoring = isinstance(event.object, ClusterStatus) and event.object.restoring
