"""What one user can send to every replica at once is refused, while the leader leads on and others are served."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import grpc

from controlplane.model.rule import Effect, Rule
from controlplane.store import codec, keys
from controlplane.store.transaction import Item, put
from controlplane.wire.v1 import packets_pb2
from tests.credentials import METADATA
from tests.fault_reports import Tell
from tests.robustness.load import load
from tests.robustness.patience import PATIENCE_SECONDS
from tests.robustness.recovery import Fault
from tests.robustness.world import World, a_world

_MB = 1 << 20
_MOST_GROWTH_BYTES = 300 * _MB


def a_wide_packet() -> bytes:
    packet = packets_pb2.Packet(name="wide")
    for _ in range(1000):
        job = packet.jobs.add().job.object
        job.command.append("true")
        for code in range(64):
            job.failure_policies.add(action="retry").on.exit_codes.append(code + 1)
    return packet.SerializeToString()


# Of the allowed size, and above.
ATTACKS = [
    ("/controlplane.v1.Orders/SubmitBatch", b"\x0a\x00" * (31 * _MB)),
    ("/controlplane.v1.Orders/SubmitBatch", b"\x0a\x00" * (2 * _MB)),
    ("/controlplane.v1.Packets/Create", b"\x52\x00" * (10 * _MB)),
    ("/controlplane.v1.Packets/Create", b"\x52\x00" * (2 * _MB)),
    ("/controlplane.v1.Packets/Create", a_wide_packet()),
    ("/controlplane.v1.Targets/Create", b"\x0a\x01x" + b"\x6a\x00" * (2 * _MB - 2)),
    ("/controlplane.v1.Jobs/Watch", b"\x0a\x80\x80\x80\x1e" + b"x" * (60 * _MB)),
]


async def send(endpoint: str, method: str, raw: bytes) -> None:
    """Returns when it was refused as too large."""
    options = [("grpc.max_send_message_length", -1), ("grpc.use_local_subchannel_pool", 1)]
    async with grpc.aio.insecure_channel(endpoint, options=options) as channel:
        call: Any = channel.unary_unary(method, lambda raw: raw, lambda raw: raw)
        try:
            await call(raw, timeout=PATIENCE_SECONDS, metadata=METADATA)
        except grpc.aio.AioRpcError as error:
            if error.code() == grpc.StatusCode.RESOURCE_EXHAUSTED:
                return
            raise
    raise AssertionError(f"{method} accepted {len(raw)} bytes")


def memory(world: World) -> int:
    """Of the replica that has most."""
    pages = [
        int(Path(f"/proc/{replica.pid}/statm").read_text().split()[1]) * 4096 for replica in world.replicas.values()
    ]
    return max(pages)


async def test_no_request_ends_a_term_or_takes_the_memory(tmp_path: Path, tell: Tell) -> None:
    async with a_world(tmp_path) as world, load(world.endpoints) as running:
        rates = await running.warm()
        before, epoch = memory(world), world.witness.epoch
        for method, raw in ATTACKS:
            await asyncio.gather(*(send(endpoint, method, raw) for endpoint in world.endpoints))
        tell(f"memory grew by {(memory(world) - before) // _MB} MiB; {await Fault(world).went_on(rates=rates)}")
        assert memory(world) - before < _MOST_GROWTH_BYTES
        assert world.witness.epoch == epoch


async def test_stored_rules_that_would_take_everything_are_left_out_and_named(tmp_path: Path, tell: Tell) -> None:
    async with a_world(tmp_path) as world, load(world.endpoints) as running:
        rates = await running.warm()
        epoch = world.witness.epoch
        rules = {
            "doubling": "size(['aaaaaaaa']" + ".map(x,x+x)" * 27 + "[0]) > 0",
            "deep": "[1].all(x, " * 25 + "true" + ")" * 25,
        }
        for name, when in rules.items():
            rule = Rule(name=name, when=when, then=Effect(forbid=True))
            await world.witness.store.commit(Item(then=(put(keys.config("rules", name), codec.encode(rule)),)))
        tell(await Fault(world).went_on(rates=rates))
        assert world.witness.epoch == epoch
        named: set[str] = set()
        async with asyncio.timeout(PATIENCE_SECONDS):
            while not named >= set(rules):
                status = await world.client.cluster.status()
                named = {key.name for key in status.isolated_keys if key.kind == "Rule"}
                await asyncio.sleep(0.2)
