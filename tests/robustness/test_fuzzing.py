"""Whatever is sent to a replica: an answer or a typed refusal, no crash, bounded memory, and work goes on."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from controlplane.wire.v1 import cluster_pb2, common_pb2, orders_pb2
from tests.component.access_stage import methods
from tests.component.fuzzing import Fuzzer
from tests.fault_reports import Tell
from tests.robustness.fuzz_stage import (
    Findings,
    end_of_a_term,
    exchange,
    furnish,
    fuzz_grpc,
    fuzz_http,
    memory_bytes,
    without_the_end_of_a_term,
)
from tests.robustness.world import Plan, World, a_world

_MIB = 1 << 20
_MOST_GROWTH_BYTES = 300 * _MIB
# Simulated: what strangers ordered is not to be run on the machine of the test.
PLAN = Plan(replicas=1, processes=0, simulated=2)
UNFORESEEN = "unexpected error in a request handler"


async def assault(world: World, seed: int, *, calls: int, requests: int) -> tuple[Findings, Findings]:
    tokens = await furnish(world)
    epoch, pid = world.witness.epoch, world.leader.pid
    fuzzer = Fuzzer(seed)
    answers = await fuzz_grpc(world.leader.grpc, without_the_end_of_a_term(), tokens, fuzzer, calls)
    pages = await fuzz_http(world.leader.http, fuzzer, requests)
    for _ in range(requests // 10):
        await exchange(world.leader.grpc, fuzzer.random.randbytes(fuzzer.random.choice((1, 24, 500, 20_000))))
    assert (world.witness.epoch, world.leader.pid) == (epoch, pid)
    await fuzz_grpc(world.leader.grpc, end_of_a_term(), tokens, fuzzer, 40)
    assert all(replica.running for replica in world.replicas.values())
    return answers, pages


async def work_goes_on(world: World) -> None:
    """An operator can undo what strangers with rights did, and then an order runs."""
    await world.witness.until(lambda: world.witness.leader in world.replicas, "somebody leads")
    for rule in (await world.client.rules.page(common_pb2.ListRequest())).items:
        await world.client.rules.delete(rule.name)
    await world.client.cluster.apply(
        cluster_pb2.ApplyRequest(objects=[cluster_pb2.Object(settings=cluster_pb2.Settings())])
    )
    world.add_simulated_targets("after", 1)

    def ready() -> list[str]:
        phases = world.witness.targets.items()
        return [name for name, phase in phases if name.startswith("after") and phase == "Ready"]

    await world.witness.until(ready, "a new target is Ready")
    order = orders_pb2.Order(priority=100, target_policy=f"strict:{ready()[0]}")
    order.packet.object.jobs.add(count=3).job.object.command.append("true")
    identity = (await world.client.orders.submit(order)).item.id
    await world.witness.until(lambda: world.witness.finals({identity}) == 1, "an order ends")


async def check(world: World, tell: Tell, *, seed: int, calls: int, requests: int) -> None:
    before = memory_bytes(world.leader.pid)
    answers, pages = await assault(world, seed, calls=calls, requests=requests)
    grown = memory_bytes(next(iter(world.replicas.values())).pid) - before
    tell(f"{answers.asked} calls {dict(answers.codes)}, {grown // _MIB} MiB more")
    tell(f"{pages.asked} requests {dict(pages.codes)}")
    assert answers.bad + pages.bad == []
    assert [line for line in world.leader.log.splitlines() if UNFORESEEN in line or "Traceback" in line] == []
    assert set(answers.by_method) == {method.full_name for method in without_the_end_of_a_term()}
    assert grown < _MOST_GROWTH_BYTES
    await work_goes_on(world)


async def test_no_input_breaks_a_replica(tmp_path: Path, tell: Tell) -> None:
    async with a_world(tmp_path, PLAN) as world:
        await check(world, tell, seed=14, calls=16 * len(methods()), requests=300)


@pytest.mark.long
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("seed", [1, 2, 3, 4])
async def test_no_input_of_fifty_thousand_breaks_a_replica(tmp_path: Path, tell: Tell, seed: int) -> None:
    async with a_world(tmp_path, PLAN) as world:
        await asyncio.wait_for(check(world, tell, seed=seed, calls=12_000, requests=1_000), 1800)
