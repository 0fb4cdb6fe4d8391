"""What the promises are judged by besides etcd's history: joblets' records, a client's record, the replicas' word."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from controlplane.aio.clock import SystemClock
from controlplane.client import Client
from controlplane.client.caller import Patience
from controlplane.model.errors import Compacted, ControlPlaneError, Invalid, NotFound
from controlplane.settings import DEFAULT_TTL
from controlplane.store.kv import Store
from controlplane.verify import p10_reasons, reading, records
from controlplane.verify.p8_cache import Told
from controlplane.verify.records import Record
from controlplane.wire.v1 import cluster_pb2, common_pb2

MOST_ORDERS = 1000
# A burst of ten thousand changes reaches every cache within this time.
CACHE_SECONDS = 10.0
_AT_ONCE = 16
_LOOKS = 12
_LOOK_SECONDS = 0.5
_SHORT = Patience(attempt_seconds=10.0, total_seconds=2.0)
# Of joblets with a process of their own, by target; and of those that replicas host, by replica and target. What a
# joblet put aside has a number in its name, and comes first when names are sorted.
_RECORDS = ("joblets/*/records*.jsonl", "hosted/*/*/records*.jsonl")


def joblet_records(data_dir: Path) -> Iterator[Record]:
    """Every whole line of every joblet below the folder."""
    for path in sorted(path for place in _RECORDS for path in data_dir.glob(place)):
        with path.open("rb") as lines:
            for line in lines:
                if (record := records.parse(line)) is not None:
                    yield record


def lives(record: Record) -> bool:
    """Whether the attempt's shim still runs: its command line names the attempt, so a reused pid is no proof."""
    try:
        command = Path(f"/proc/{record.pid}/cmdline").read_bytes()
    except OSError:
        return False
    return f"{record.order}.{record.job}.{record.index}.{record.attempt}\0".encode() in command


def identities(path: Path) -> list[str]:
    """The acknowledged orders of a client's record: JSON lines with an id each."""
    try:
        with path.open("rb") as lines:
            return [str(json.loads(line)["id"]) for line in lines if line.strip()]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise Invalid("record", f"{path} is no file of JSON lines with an id each: {error}") from None


async def hashes(store: Store, replicas: Sequence[tuple[str, str]]) -> list[Told]:
    """What each replica (name, address) says of its cache, beside a list at the same revision."""
    newest = await reading.newest(store)
    return await asyncio.gather(*(_hash(store, name, endpoint, newest) for name, endpoint in replicas))


async def _behind(client: Client, newest: int) -> tuple[int, str]:
    """The revision of the replica's cache, and why that is too old although there was time to follow; empty if not."""
    clock = SystemClock()
    give_up = clock.monotonic() + CACHE_SECONDS
    while True:
        status = await client.cluster.status()
        why = why_behind(status, newest)
        if not why or clock.monotonic() >= give_up:
            return int(status.revision), why
        await clock.sleep(_LOOK_SECONDS)


def why_behind(status: cluster_pb2.StatusResponse, newest: int) -> str:
    """Where nothing was written meanwhile, the replica's own word on the age of its cache tells that it is cut off."""
    if status.revision < newest:
        return f"stayed behind revision {newest}, which etcd had {CACHE_SECONDS:g} s before"
    if status.cache_age_seconds > CACHE_SECONDS:
        return f"was last known to hold all that etcd held {status.cache_age_seconds:.1f} s before"
    return ""


async def ttl_seconds(store: Store, leases: Sequence[int]) -> float:
    """The longest time that a candidate's lease was granted for; that of the settings when nobody stands."""
    granted = await asyncio.gather(*(store.granted_seconds(lease) for lease in leases))
    return max(granted, default=0) or DEFAULT_TTL


async def _hash(store: Store, name: str, endpoint: str, newest: int) -> Told:
    async with Client([endpoint], patience=_SHORT) as client:
        try:
            revision, behind = await _behind(client, newest)
            if behind:
                return Told(name, revision, behind=behind)
            told = await client.cluster.hash()
        except ControlPlaneError as error:
            return Told(name, failure=str(error))
    try:
        listed = await reading.listing(store, told.revision)
    except Compacted:
        return Told(name, failure=f"revision {told.revision} of its cache is compacted")
    return Told(name, told.revision, told.hash, told.keys, listed.hash(), listed.keys)


async def open_orders(client: Client) -> list[Any]:
    """Orders that are not final, each with its reasons; one whose numbers are of two moments is read again."""
    names: list[str] = []
    for phase in ("Pending", "Running", "Paused"):
        request = common_pb2.ListRequest(phase=phase, limit=MOST_ORDERS)
        names.extend(item.id for item in (await client.orders.page(request)).items)
    gate = asyncio.Semaphore(_AT_ONCE)
    found = await asyncio.gather(*(_settled(client, name, gate) for name in names[:MOST_ORDERS]))
    return [order for order in found if order is not None]


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
