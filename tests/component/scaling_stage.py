"""What scaling is played on: a provider whose clusters are a joblet's keys in a real etcd, and policies in few words.

The cloud is idempotent by the request's key, as a provider has to be, and notes whom it was asked for and how often.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

from controlplane.model.errors import Deposed, StaleAttempt
from controlplane.model.fulfilment import Fulfilment
from controlplane.model.scalepolicy import Made, ScalePolicy, TargetTemplate
from controlplane.model.target import Target, TargetStatus
from controlplane.store import codec, keys
from controlplane.store.kv import Store
from controlplane.store.transaction import Item, Operation, delete, put
from tests.builders import a_session, an_identity


def a_policy(**change: Any) -> ScalePolicy:
    """As admission leaves it: one cpu a target, more when anything waits, gone as soon as nothing is on it."""
    given: dict[str, Any] = {
        "name": "farm", "provider": "cloud", "metric": "queue", "threshold": 0, "min": 0, "max": 3, "step": 1,
        "cool_down": 0, "idle": 0, "template": TargetTemplate(driver="process", capacity={"cpu": 1}),
    }  # fmt: skip
    return ScalePolicy(**(given | change))


class Cloud:
    """`fails_after` lets the leader die when it has acted so many times, before it hears of it."""

    def __init__(self, store: Store, fails_after: int | None = None) -> None:
        self.store = store
        self.left = fails_after
        self.clusters: dict[str, Made] = {}
        self.requests: dict[str, str] = {}
        self.asked: Counter[str] = Counter()
        self.built: Counter[str] = Counter()
        self.ended: set[str] = set()

    async def create(self, made: Made) -> None:
        await self._act("create", made)

    async def resize(self, made: Made) -> None:
        await self._act("resize", made)

    async def remove(self, made: Made) -> None:
        await self._act("remove", made)

    async def _act(self, action: str, made: Made) -> None:
        self.asked[f"{action} {made.target}"] += 1
        if self.requests.setdefault(made.request, action) != action:
            raise AssertionError(f"{made.request} was asked for twice with different meanings")
        await self.store.commit(Item(then=self._changes(action, made)))
        if self.left is not None:
            self.left -= 1
            if self.left < 0:
                raise Deposed("died while the provider acted")

    def _changes(self, action: str, made: Made) -> tuple[Operation, ...]:
        live = keys.live(made.target)
        if action == "remove":
            self.clusters.pop(made.target, None)
            self.ended.add(made.id)
            return (delete(live),)
        if made.id in self.ended:
            raise StaleAttempt(f"{made.target} was removed")
        if made.target not in self.clusters:
            self.built[made.id] += 1
        self.clusters[made.target] = made
        target = Target(name=made.target, id=an_identity(), driver="process", creator="joblet")
        status = TargetStatus(target=made.target, epoch=1, phase="Ready")
        return (
            put(keys.config("targets", made.target), codec.encode(target)),
            put(keys.target_status(made.target), codec.encode(status)),
            put(live, codec.encode(a_session(made.target, **made.capacity))),
        )


def is_on(fulfilment: Fulfilment, target: str) -> bool:
    return fulfilment.target == target
