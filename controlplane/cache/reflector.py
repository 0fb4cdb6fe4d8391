"""The reflector: lists `/controlplane/` at a revision, then follows the prefix by a watch, for ever.

Subscribers hear of every change once and in order, after the snapshot with the change is in place. A compaction is
answered by a new list, whose difference to the cache is told like any other change. Every few minutes the cache is
compared with a list of keys and mod revisions; differences are repaired, told and counted.
"""

from __future__ import annotations

import asyncio
import hashlib
import heapq
import itertools
from collections.abc import Callable, Collection, Sequence
from contextlib import aclosing
from functools import partial
from typing import Any, NamedTuple

import structlog
from immutables import Map

from controlplane.aio.clock import Clock
from controlplane.aio.thread_team import QUESTIONS
from controlplane.cache.audience import Audience, ListenerStage
from controlplane.cache.freshness import Freshness
from controlplane.cache.snapshot import Branch, Entry, Snapshot, place_of
from controlplane.model.errors import Compacted, Unavailable
from controlplane.quarantine import Quarantine
from controlplane.store import keys
from controlplane.store.kv import Store
from controlplane.store.transaction import Value
from controlplane.store.watch import Change, watch

log = structlog.get_logger(__name__)


class Delta(NamedTuple):
    """The change of a key: the entries before and after. A list tells all changes at its own revision."""

    tree: str
    parts: tuple[str, ...]
    old: Entry[Any] | None
    new: Entry[Any] | None
    revision: int


_EMPTY: Branch = Map()
_MOST_GIVEN_UP = 64
# The longest wait for a revision of etcd; a stale cache fails waits earlier.
REACH_SECONDS = 30.0
_AGAIN_SECONDS = 0.2

Listener = Callable[[Sequence[Delta], int], None]


class Cache:
    def __init__(
        self, store: Store, clock: Clock, *, check_seconds: float = 300.0, quarantine: Quarantine | None = None
    ) -> None:
        self._store = store
        self._clock = clock
        self._quarantine = quarantine or Quarantine(clock)
        self._check_seconds = check_seconds
        self._trees: dict[str, Branch] = {tree: Map() for tree in keys.TREES}
        self._revision = 0
        self._snapshot: Snapshot | None = None
        self._audience: Audience[Delta] = Audience()
        self._waiting: list[tuple[int, int, asyncio.Future[None]]] = []
        self._tie = itertools.count()
        self._given_up = 0
        self._filled = asyncio.Event()
        self._freshness = Freshness(
            store, clock, holds=lambda: self._revision, waited_for=self._lowest_wait, advance=self._advance
        )
        self._hashing = asyncio.Lock()
        self._hashed: tuple[int, str, int] | None = None
        self.repaired = 0

    @property
    def revision(self) -> int:
        return self._revision

    @property
    def synced(self) -> bool:
        return self._revision > 0

    @property
    def age_seconds(self) -> float:
        """The time since the cache was last known to hold all that etcd held."""
        return self._freshness.age_seconds

    @property
    def is_stale(self) -> bool:
        """Whether the cache is too old for decisions and answers."""
        return self.synced and self._freshness.is_stale

    async def filled(self) -> None:
        """Returns once the cache was filled."""
        await self._filled.wait()

    async def stale(self) -> None:
        """Returns when the cache is too old."""
        await self._freshness.stale()

    @property
    def snapshot(self) -> Snapshot:
        if self._snapshot is None:
            self._snapshot = Snapshot(self._revision, dict(self._trees))
        return self._snapshot

    def subscribe(
        self, listener: Listener, trees: Collection[str] | None = None, *, stage: ListenerStage = ListenerStage.REACT
    ) -> Callable[[], None]:
        """The listener is called from now on, never concurrently, and must not await. Returns how to stop.

        With trees, the listener hears of changes in these trees only. Listeners of an earlier stage are called first.
        """
        return self._audience.add(listener, trees, stage)

    async def reached(self, revision: int, timeout: float | None = REACH_SECONDS) -> None:
        """Returns once the cache holds the revision; Unavailable after the time-out, or when the cache is stale."""
        if revision <= self._revision:
            return
        if self.is_stale:
            raise self._too_old()
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        heapq.heappush(self._waiting, (revision, next(self._tie), future))
        self._freshness.help_waits()
        try:
            async with asyncio.timeout(timeout):
                await future
        except TimeoutError:
            raise Unavailable(f"this replica has not reached revision {revision} yet") from None
        finally:
            if future.cancelled():
                self._forget_wait()

    def _forget_wait(self) -> None:
        """Bounds the number of waits that were given up."""
        self._given_up += 1
        if self._given_up > max(_MOST_GIVEN_UP, len(self._waiting) // 2):
            self._waiting = [wait for wait in self._waiting if not wait[2].done()]
            heapq.heapify(self._waiting)
            self._given_up = 0

    def _too_old(self) -> Unavailable:
        return Unavailable(
            f"this replica's cache is {self.age_seconds:.0f} s old, at revision {self._revision}: ask another replica"
        )

    def _fail_waits(self) -> None:
        """The cache is stale: callers should ask another replica instead of waiting."""
        waiting, self._waiting = self._waiting, []
        for _, _, future in waiting:
            if not future.done():
                future.set_exception(self._too_old())

    async def run(self) -> None:
        """Follows etcd until cancelled; after any error the cache lists again and goes on."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._quarantine.supervise("cache", "Cluster", "watch", self._follow))
            tasks.create_task(self._quarantine.supervise("cache", "Cluster", "self-check", self._check_forever))
            noticing = partial(self._freshness.run, self._fail_waits)
            tasks.create_task(self._quarantine.supervise("cache", "Cluster", "freshness", noticing))

    async def _follow(self) -> None:
        lookout = self._freshness.lookout
        while True:
            try:
                await self._relist()
                batches = watch(self._store.channels, keys.ROOT, self._revision + 1, lookout=lookout)
                async with aclosing(batches):
                    async for batch in batches:
                        self._apply(batch.changes, batch.revision)
            except Compacted:
                log.warning("history is compacted, listing again", revision=self._revision)
            except Unavailable as error:
                log.warning("etcd cannot be listed", error=str(error))
            await self._clock.sleep(_AGAIN_SECONDS)

    async def _relist(self) -> None:
        asked_at = self._clock.monotonic()
        listed: dict[str, Value] = {}
        revision = 0
        async for page in self._store.pages():
            revision = page.revision
            listed.update((value.key, value) for value in page.values)
        held = {entry.stored.key: entry.stored.mod_revision for entry in self.snapshot.everything()}
        gone = [Change(key, revision, None) for key in held.keys() - listed.keys()]
        changed = [Change(key, revision, value) for key, value in listed.items() if held.get(key) != value.mod_revision]
        self._apply([*gone, *changed], revision)
        self._freshness.confirm(asked_at)
        self._filled.set()

    def _apply(self, changes: Sequence[Change], revision: int) -> None:
        deltas = [enter(self._trees, change) for change in changes]
        self._revision = max(revision, self._revision)
        self._snapshot = self._hashed = None
        for listener, part in self._audience.concerned(deltas):
            self._tell(listener, part)
        self._release_waits()

    def _advance(self, revision: int) -> None:
        """No key of this cache changed up to the revision: only keys outside of the prefix did."""
        if revision > self._revision:
            self._revision = revision
            self._snapshot = None
            self._release_waits()

    def _lowest_wait(self) -> int:
        while self._waiting and self._waiting[0][2].done():
            heapq.heappop(self._waiting)
        return self._waiting[0][0] if self._waiting else 0

    def _release_waits(self) -> None:
        while self._waiting and self._waiting[0][0] <= self._revision:
            future = heapq.heappop(self._waiting)[2]
            if not future.done():
                future.set_result(None)

    def _tell(self, listener: Listener, deltas: Sequence[Delta]) -> None:
        """A failing listener disturbs neither the other listeners nor the watch."""
        try:
            listener(deltas, self._revision)
        except Exception as error:  # noqa: BLE001 - supervision of whoever listens
            self._quarantine.failed("cache", "Listener", _name_of(listener), error)
        else:
            if self._quarantine.total:
                self._quarantine.passed("cache", "Listener", _name_of(listener))

    async def _check_forever(self) -> None:
        while True:
            await self._clock.sleep(self._check_seconds)
            try:
                await self.check()
            except (Compacted, Unavailable) as error:
                log.warning("the cache could not be checked", error=str(error))

    async def check(self) -> int:
        """Compares with a list at the cache's own revision, repairs differences, returns their number."""
        snapshot = self.snapshot
        listed: dict[str, int] = {}
        async for page in self._store.pages(revision=snapshot.revision, keys_only=True):
            listed.update((value.key, value.mod_revision) for value in page.values)
        held = {entry.stored.key: entry.stored.mod_revision for entry in snapshot.everything()}
        wrong = {key for key in held.keys() | listed.keys() if held.get(key) != listed.get(key)}
        for key in wrong:
            value = await self._store.get(key)
            now = _find(self._trees.get(place_of(key)[0], Map()), place_of(key)[1])
            if (value.mod_revision if value else 0) != (now.revision if now else 0):
                self.repaired += 1
                log.error("the watch missed a change, repaired", key=key)
                self._apply([Change(key, self._revision, value)], self._revision)
        return len(wrong)

    async def hash(self) -> tuple[int, str, int]:
        """(revision, digest, number of keys) of the cache; HashResponse defines the digest."""
        async with self._hashing:
            snapshot = self.snapshot
            if self._hashed is None or self._hashed[0] != snapshot.revision:
                digest, count = await QUESTIONS.run(digest_of, snapshot)
                self._hashed = (snapshot.revision, digest, count)
            return self._hashed


def _name_of(listener: Listener) -> str:
    return getattr(listener, "__qualname__", type(listener).__name__)


def enter(trees: dict[str, Branch], change: Change) -> Delta:
    """Makes the change in the trees, and returns it as a Delta. Runs for every change; keys have one or two parts."""
    tree, parts = place_of(change.key)
    new: Entry[Any] | None = Entry(tree, parts, change.value) if change.value is not None else None
    before = trees.get(tree, _EMPTY)
    if len(parts) == 1:
        old = before.get(parts[0])
        trees[tree] = _changed(before, parts[0], new, old)
    else:
        inner = before.get(parts[0], _EMPTY)
        old = inner.get(parts[1])
        now = _changed(inner, parts[1], new, old)
        trees[tree] = before.set(parts[0], now) if now else _changed(before, parts[0], None, inner or None)
    return Delta(tree, parts, old, new, change.revision)


def _changed(tree: Branch, name: str, new: Entry[Any] | None, old: object) -> Branch:
    if new is not None:
        return tree.set(name, new)
    return tree.delete(name) if old is not None else tree


def digest_of(snapshot: Snapshot) -> tuple[str, int]:
    pairs = sorted((entry.stored.key.removeprefix(keys.ROOT), entry.revision) for entry in snapshot.everything())
    digest = hashlib.sha256()
    for key, revision in pairs:
        digest.update(f"{key}\0{revision}\n".encode())
    return digest.hexdigest(), len(pairs)


def _find(tree: Branch, parts: tuple[str, ...]) -> Entry[Any] | None:
    node: object = tree
    for part in parts:
        if not isinstance(node, Map):
            return None
        node = node.get(part)
    return node if isinstance(node, Entry) else None
