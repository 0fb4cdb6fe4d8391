"""Sessions: the right of a joblet to speak for a target.

A session is the lease of `inventory/<target>/live`. One joblet holds the session at a time. The same joblet, recognised
by its secret, takes over its own session at once; another joblet is refused until the key is gone. Only the digest of
the secret is stored. The lease of a session that did not come about is given back.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import msgspec
import structlog

from controlplane.apiserver.api_ports import Reads, Writes
from controlplane.cache.effective_settings import settings_of
from controlplane.model import pace, quantity, times
from controlplane.model.errors import AlreadyExists, Broken, ControlPlaneError, Invalid, NotFound, Unavailable
from controlplane.model.event import WARNING, About, Happening, Record
from controlplane.model.settings import Settings
from controlplane.model.target import Hardware, Live
from controlplane.store import codec, keys, transaction
from controlplane.store.transaction import Compare, Item, Operation, Value
from controlplane.wire.v1 import joblets_pb2

log = structlog.get_logger(__name__)

REACH_SECONDS = 1.0
_TRIES = 5
_MAX_TEXT = 256
_MAX_QUANTITIES = 64


class Promise(NamedTuple):
    """Seconds: the length of the lease, how long holders may outlive the lease, the interval of heartbeats."""

    lease_seconds: int
    stop_within: quantity.Number
    heartbeat_seconds: float


@dataclass(frozen=True)
class Session:
    """`revision` is that of the live key when the session was opened, `live` and `raw` are the key's value then.

    Reports and changes below the revision belong to other sessions.
    """

    target: str
    lease: int
    revision: int
    live: Live
    raw: bytes
    heartbeat_seconds: float

    @cached_property
    def name(self) -> str:
        return name_of(self.lease)

    @cached_property
    def holds(self) -> Compare:
        """Compares that the session still holds its target: part of every write for the session."""
        return transaction.lease_is(keys.live(self.target), self.lease)

    @cached_property
    def look(self) -> Operation:
        """Reads the holder of the target, for a refused write."""
        return transaction.get(keys.live(self.target))


def name_of(lease: int) -> str:
    return f"{lease:x}"


class Sessions:
    def __init__(self, reads: Reads, writes: Writes, record: Record) -> None:
        self._reads = reads
        self._writes = writes
        self._record = record

    async def open(self, hello: joblets_pb2.Hello) -> Session:
        """The session of the joblet: the present session, its own session taken over, or a new session."""
        check(hello)
        await reach(self._reads, self._writes.space.cluster_id, hello)
        await self._find_target(hello.target)
        snapshot = self._reads.cache.snapshot
        promise = promised(settings_of(snapshot), snapshot.count(keys.TARGETS))
        session = await self._try_fresh(hello, promise)
        for _ in range(_TRIES):
            session = session or await self._try(hello, promise)
        if session is not None:
            return session
        raise Unavailable(f"the session of target {hello.target} changed {_TRIES} times while it was asked for")

    async def _find_target(self, target: str) -> None:
        if self._reads.cache.snapshot.has(keys.TARGETS, target):
            return
        if await self._reads.store.get(keys.config("targets", target)) is None:
            raise NotFound(f"target {target} does not exist", field="target")

    async def _try_fresh(self, hello: joblets_pb2.Hello, promise: Promise) -> Session | None:
        """Most often the target has no session by the cache; the write proves that without a read before."""
        if hello.session or self._reads.cache.snapshot.live_entry(hello.target) is not None:
            return None
        return await self._begin(hello, promise, transaction.absent(keys.live(hello.target)), hello.leftovers)

    async def _try(self, hello: joblets_pb2.Hello, promise: Promise) -> Session | None:
        """None when the live key changed in between."""
        key = keys.live(hello.target)
        stored = await self._reads.store.get(key)
        if stored is None:
            return await self._begin(hello, promise, transaction.absent(key), hello.leftovers)
        live = _read(stored)
        if not hmac.compare_digest(live.secret_digest, digest(hello.instance_secret)):
            self._tell_refused(hello, live)
            raise AlreadyExists(
                f"target {hello.target} has a joblet already: instance {live.instance}, since {live.since}",
                field="target",
            )
        # The same process without a session lost its welcome: the session exists.
        continues = live.instance == hello.instance and hello.session in ("", name_of(stored.lease))
        if continues and (live.lease_seconds, live.stop_within) == (promise.lease_seconds, promise.stop_within):
            return await self._go_on(hello, promise, stored, live)
        # The old session never expired, so no work was reassigned: keep the recorded leftovers instead of the hello's.
        session = await self._begin(hello, promise, transaction.mod_is(key, stored.mod_revision), live.leftovers)
        if session is not None:
            await self._give_back(stored.lease)
        return session

    async def close(self, session: Session) -> None:
        """The joblet will not come back."""
        await self._give_back(session.lease)

    async def _begin(
        self, hello: joblets_pb2.Hello, promise: Promise, unchanged: Compare, leftovers: int
    ) -> Session | None:
        lease = await self._reads.store.grant(promise.lease_seconds)
        live = Live(
            target=hello.target,
            session=name_of(lease),
            instance=hello.instance,
            secret_digest=digest(hello.instance_secret),
            driver=hello.driver,
            version=hello.version,
            capacity=_capacity(hello),
            lease_seconds=promise.lease_seconds,
            stop_within=promise.stop_within,
            since=times.show(self._writes.clock.wall()),
            cluster=self._writes.space.cluster_id,
            known_attempt=hello.known_attempt,
            hardware=_hardware(hello),
            leftovers=max(leftovers, 0),
        )
        raw = codec.encode(live)
        put = transaction.put(keys.live(hello.target), raw, lease=lease)
        outcome = await self._writes.writer.write(Item((unchanged,), (put,)))
        if not outcome.succeeded:
            await self._give_back(lease)
            return None
        return Session(hello.target, lease, outcome.revision, live, raw, promise.heartbeat_seconds)

    async def _go_on(self, hello: joblets_pb2.Hello, promise: Promise, stored: Value, live: Live) -> Session | None:
        now = msgspec.structs.replace(
            live,
            capacity=_capacity(hello),
            version=hello.version,
            driver=hello.driver,
            session=name_of(stored.lease),
            cluster=self._writes.space.cluster_id,
            known_attempt=hello.known_attempt,
            hardware=_hardware(hello),
        )
        if now == live:
            revision, raw = stored.mod_revision, stored.value
            return Session(hello.target, stored.lease, revision, live, raw, promise.heartbeat_seconds)
        key, raw = keys.live(hello.target), codec.rewrite(stored.value, now)
        put = transaction.put(key, raw, lease=stored.lease)
        outcome = await self._writes.writer.write(Item((transaction.mod_is(key, stored.mod_revision),), (put,)))
        if not outcome.succeeded:
            return None
        return Session(hello.target, stored.lease, outcome.revision, now, raw, promise.heartbeat_seconds)

    def _tell_refused(self, hello: joblets_pb2.Hello, live: Live) -> None:
        """Two joblets for one target are a mistake of a person who may not read the logs of both."""
        about = About(kind="Target", name=hello.target)
        message = f"another joblet was refused: instance {live.instance} has the target"
        self._record(Happening(about=about, reason="JobletRefused", message=message, type=WARNING))

    async def _give_back(self, lease: int) -> None:
        """A lease which cannot be revoked runs out: no key is attached to the lease any more."""
        try:
            await self._reads.store.revoke(lease)
        except NotFound:
            return
        except ControlPlaneError as error:
            log.debug("an unused lease is left to run out", lease=name_of(lease), error=str(error))


async def reach(reads: Reads, cluster_id: str, hello: joblets_pb2.Hello) -> None:
    """Waits for the revision the joblet saw of this etcd; Unavailable while no leader has noted a restore."""
    if reads.cache.is_stale:
        raise Unavailable("this replica's cache is stale: another replica knows what the joblet has to do")
    seen = hello.highest_revision if hello.cluster in ("", cluster_id) else 0
    try:
        await reads.cache.reached(max(seen, 1), REACH_SECONDS)
    except Unavailable as late:
        head = await reads.store.revision()
        if head >= seen:
            raise
        why = f"etcd is at revision {head}, but this joblet saw {seen}: it was restored without a new cluster id"
        raise Unavailable(why) from late
    cluster = reads.cache.snapshot.cluster_status()
    if cluster is not None and cluster.cluster_id != cluster_id:
        raise Unavailable("etcd was restored, and no leader has taken note of it yet")


def has_to_start_over(reads: Reads, cluster_id: str, hello: joblets_pb2.Hello) -> bool:
    """Whether the joblet may run work placed by another etcd, or by this etcd before its restore."""
    cluster = reads.cache.snapshot.cluster_status()
    if hello.cluster == cluster_id:
        return False
    return bool(hello.cluster) or (cluster is not None and cluster.restored > 0)


def check(hello: joblets_pb2.Hello) -> None:
    """Invalid when the joblet does not identify itself, or a field is too long."""
    for field in ("target", "driver", "instance", "instance_secret"):
        if not getattr(hello, field):
            raise Invalid(field, "must not be empty")
    for field in ("target", "driver", "instance", "instance_secret", "version", "session", "cluster"):
        if len(getattr(hello, field)) > _MAX_TEXT:
            raise Invalid(field, f"must not be longer than {_MAX_TEXT} characters")
    if "/" in hello.target:
        raise Invalid("target", "must be a name, without a slash")
    for field in ("cpu_model", "os", "kernel"):
        if len(getattr(hello.hardware, field)) > _MAX_TEXT:
            raise Invalid(f"hardware.{field}", f"must not be longer than {_MAX_TEXT} characters")
    for field in ("memory", "disk", "cpus"):
        quantity.check(getattr(hello.hardware, field), f"hardware.{field}")
    sound_capacity(hello.capacity)


def sound_capacity(capacity: Mapping[str, float]) -> dict[str, quantity.Number]:
    """The capacity as stored; Invalid for an invalid capacity."""
    if len(capacity) > _MAX_QUANTITIES:
        raise Invalid("capacity", f"must not name more than {_MAX_QUANTITIES} quantities")
    for name, amount in capacity.items():
        if not 0 < len(name) <= _MAX_TEXT:
            raise Invalid("capacity", f"must name its quantities in 1 to {_MAX_TEXT} characters")
        quantity.check(amount, f"capacity.{name}")
    return {name: quantity.whole(amount) for name, amount in capacity.items()}


def digest(secret: str) -> str:
    return hashlib.sha256(secret.encode()).hexdigest()


def promised(settings: Settings, targets: int) -> Promise:
    """The promise grows with the number of targets, see `model/pace`."""
    paced = pace.pace(settings, targets)
    return Promise(paced.lease_seconds, settings.kill_grace, paced.heartbeat_seconds)


def _hardware(hello: joblets_pb2.Hello) -> Hardware | None:
    """Fields of a newer joblet beyond these are left out."""
    if not hello.HasField("hardware"):
        return None
    said = hello.hardware
    return Hardware(
        cpu_model=said.cpu_model,
        cpus=said.cpus,
        memory=quantity.whole(said.memory),
        disk=quantity.whole(said.disk),
        os=said.os,
        kernel=said.kernel,
    )


def _capacity(hello: joblets_pb2.Hello) -> dict[str, quantity.Number]:
    return sound_capacity(hello.capacity)


def _read(stored: Value) -> Live:
    try:
        return codec.read(stored, Live)
    except Broken as error:
        raise AlreadyExists(f"{stored.key} cannot be read, delete it to go on: {error}", field="target") from None
