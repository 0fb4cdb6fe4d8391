"""Evidence besides etcd's history: joblets' records, a client's record, and the answers of replicas."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from controlplane.aio import processes
from controlplane.aio.clock import SystemClock, suspended_seconds
from controlplane.client import Client
from controlplane.client.caller import CallTimeouts
from controlplane.client.health import is_serving
from controlplane.joblet.drivers.process.process_search import is_shim
from controlplane.model.errors import Compacted, ControlPlaneError, Invalid, NotFound, Unavailable
from controlplane.replica_settings import DEFAULT_TTL
from controlplane.store.kv import Store
from controlplane.verify import joblet_records, p10_reasons
from controlplane.verify.gathering import history_reader
from controlplane.verify.joblet_records import JobletRecord
from controlplane.verify.p8_cache import CacheAnswer
from controlplane.wire.transport import opener_for
from controlplane.wire.v1 import cluster_pb2, common_pb2

MOST_ORDERS = 1000
# A burst of ten thousand changes reaches every cache within this time.
CACHE_SECONDS = 10.0
_AT_ONCE = 16
_LOOKS = 12
_LOOK_SECONDS = 0.5
# Start times of processes are counted in hundredths of a second.
_CLOCK_ERROR_SECONDS = 0.02
_SHORT = CallTimeouts(attempt_seconds=10.0, total_seconds=2.0)
# Records of joblets in processes of their own, by target; and of hosted joblets, by replica and target. The older
# records of a joblet have a number in their name, and come first when names are sorted.
_RECORDS = ("joblets/*/records*.jsonl", "hosted/*/*/records*.jsonl")


def read_joblet_records(data_dir: Path) -> Iterator[JobletRecord]:
    """Every whole record of every joblet below the folder."""
    for path in sorted(path for pattern in _RECORDS for path in data_dir.glob(pattern)):
        with path.open("rb") as lines:
            for line in lines:
                if (record := joblet_records.parse(line)) is not None:
                    yield record


def lives(record: JobletRecord) -> bool:
    """Whether the attempt's shim still runs. A process that started after the record was written only has its pid."""
    process = processes.of(record.pid)
    if process is None or process.boot != record.boot or not is_shim(record.pid):
        return False
    return process.started_seconds <= record.monotonic + suspended_seconds() + _CLOCK_ERROR_SECONDS


def identities(path: Path) -> list[str]:
    """The acknowledged orders of a client's record: JSON lines with an id each."""
    try:
        with path.open("rb") as lines:
            return [str(json.loads(line)["id"]) for line in lines if line.strip()]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise Invalid("record", f"{path} is no file of JSON lines with an id each: {error}") from None


async def hashes(store: Store, replicas: Sequence[tuple[str, str]], token: str, ca_file: str = "") -> list[CacheAnswer]:
    """The digest of each replica's (name, address) cache, beside the digest of a list at the same revision."""
    newest = await history_reader.newest(store)
    return await asyncio.gather(
        *(_hash(store, name, _AskedReplica(endpoint, token, ca_file), newest) for name, endpoint in replicas)
    )


class _AskedReplica:
    """A replica that is asked for the state of its cache."""

    def __init__(self, endpoint: str, token: str, ca_file: str) -> None:
        self.endpoint = endpoint
        self.opener = opener_for(ca_file)
        self.client = Client([endpoint], token=token, ca_file=ca_file, timeouts=_SHORT)


async def _behind(asked: _AskedReplica, newest: int) -> tuple[int, str]:
    """The revision of the replica's cache, and the reason when the cache stays behind for 10 s; empty otherwise.

    A replica that has not heard from etcd for long answers nobody, but says so in its health.
    """
    clock = SystemClock()
    give_up = clock.monotonic() + CACHE_SECONDS
    while True:
        try:
            status = await asked.client.cluster.status()
            revision, why = int(status.revision), why_behind(status, newest)
        except Unavailable as error:
            if await is_serving(asked.endpoint, _LOOK_SECONDS, asked.opener) is not False:
                raise
            revision, why = newest, f"stayed behind: the replica does not serve ({error})"
        if not why or clock.monotonic() >= give_up:
            return revision, why
        await clock.sleep(_LOOK_SECONDS)


def why_behind(status: cluster_pb2.StatusResponse, newest: int) -> str:
    """The reason, or an empty text. While etcd gets no writes, only the cache's age shows that a replica is cut off."""
    if status.revision < newest:
        return f"stayed behind revision {newest}, which etcd had {CACHE_SECONDS:g} s before"
    if status.cache_age_seconds > CACHE_SECONDS:
        return f"was last known to hold all that etcd held {status.cache_age_seconds:.1f} s before"
    return ""


async def ttl_seconds(store: Store, leases: Sequence[int]) -> float:
    """The longest TTL of a candidate's lease; the default of the settings without a candidate."""
    granted = await asyncio.gather(*(store.granted_seconds(lease) for lease in leases))
    return max(granted, default=0) or DEFAULT_TTL


async def _hash(store: Store, name: str, asked: _AskedReplica, newest: int) -> CacheAnswer:
    async with asked.client as client:
        try:
            revision, behind = await _behind(asked, newest)
            if behind:
                return CacheAnswer(name, revision, behind=behind)
            answer = await client.cluster.hash()
        except ControlPlaneError as error:
            return CacheAnswer(name, failure=str(error))
    try:
        listed = await history_reader.listing(store, answer.revision)
    except Compacted:
        return CacheAnswer(name, failure=f"revision {answer.revision} of its cache is compacted")
    return CacheAnswer(name, answer.revision, answer.hash, answer.keys, listed.hash(), listed.keys)


async def open_orders(client: Client) -> list[Any]:
    """Orders that are not final, each with its reasons; an order with numbers of two moments is read again."""
    names: list[str] = []
    for phase in ("Pending", "Running", "Paused"):
        request = common_pb2.ListRequest(phase=phase, limit=MOST_ORDERS)
        names.extend(item.id for item in (await client.orders.page(request)).items)
    gate = asyncio.Semaphore(_AT_ONCE)
    orders = await asyncio.gather(*(_settled(client, name, gate) for name in names[:MOST_ORDERS]))
    return [order for order in orders if order is not None]


async def _settled(client: Client, name: str, gate: asyncio.Semaphore) -> Any | None:
    order: Any = None
    for _ in range(_LOOKS):
        async with gate:
            try:
                order = await client.orders.get(name)
            except NotFound:
                return None
        if not p10_reasons.differs(order):
            return order
        await asyncio.sleep(_LOOK_SECONDS)
    return order
