"""A control plane with clusters as targets: all of it real but the nodes, which `kubelet.py` plays."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from controlplane.model.fulfilment import Ended, EndedTask
from controlplane.store import codec
from controlplane.wire.v1 import cluster_pb2, common_pb2, jobs_pb2, orders_pb2, packets_pb2
from tests.kubernetes.kubelet import Json
from tests.robustness import promises
from tests.robustness.parts import Joblet
from tests.robustness.patience import PATIENCE_SECONDS
from tests.robustness.world import Plan, World

# Few and quick: one replica, no other targets.
SETTINGS = cluster_pb2.Settings(joblet_lease=2, heartbeat=0.5, target_grace=2, kill_grace=1)
ALONE = Plan(replicas=1, processes=0, simulated=0, settings=SETTINGS)
# For joblets that may take their time to come back, and for much work on a busy machine.
PATIENT = replace(ALONE, settings=cluster_pb2.Settings(target_grace=PATIENCE_SECONDS))


def add_cluster(
    world: World,
    target: str,
    kubeconfig: Path,
    *,
    namespace: str = "",
    flags: Sequence[str] = (),
    endpoints: Sequence[str] = (),
) -> Joblet:
    """Its joblet is started at once."""
    told = ["--driver", "kubernetes", "--kubeconfig", str(kubeconfig), *flags]
    if namespace:
        told += ["--namespace", namespace]
    return world._add(target, told, endpoints)


async def until_ready(world: World, *targets: str) -> None:
    witness = world.witness
    await witness.until(
        lambda: all(witness.targets.get(target) == "Ready" for target in targets), f"{targets} are Ready"
    )


async def submit(world: World, *, count: int = 1, cpu: float = 1.0, unique: str = "", target: str = "") -> str:
    """An order of that many pods; its identity."""
    job = jobs_pb2.Job(
        image="registry.example/none:1",
        command=["run", "$(INDEX)"],
        requests=common_pb2.Quantities(of={"cpu": cpu}),
        resources=[unique] if unique else [],
    )
    packet = packets_pb2.Packet(jobs=[packets_pb2.PacketJob(job=packets_pb2.JobRef(object=job), count=count)])
    order = orders_pb2.Order(id=world.client.mint.make(), packet=orders_pb2.PacketRef(object=packet))
    if target:
        order.target_policy = f"strict:{target}"
    await world.client.orders.submit(order)
    return order.id


async def until_final(world: World, *orders: str, seconds: float = PATIENCE_SECONDS) -> list[str]:
    """The phase of each, once all have ended."""
    witness = world.witness
    await witness.until(lambda: witness.finals(set(orders)) == len(orders), "the orders have ended", seconds=seconds)
    return [witness.phases[order] for order in orders]


def ends(world: World, order: str) -> list[tuple[str, EndedTask]]:
    """(target, end) of every attempt of an order."""
    found: list[tuple[str, EndedTask]] = []
    for key, value in sorted(world.witness.values.items()):
        if key.startswith(f"/controlplane/status/ended/{order}/"):
            ended = codec.decode(value.value, Ended)
            found += [(ended.target, task) for task in ended.tasks]
    return found


async def kept(world: World, *orders: str) -> None:
    """Fails when a promise was broken, by etcd's history and the joblets' records."""
    await world.witness.caught_up()
    for verdict in promises.judge(world, set(orders)):
        shown = "; ".join(f"{it.key}@{it.revision} {it.why}" for it in verdict.violations[:5])
        assert verdict.ok or not verdict.checked, f"{verdict.promise}: {shown} {verdict.why}"


def begun(world: World, target: str) -> list[str]:
    """Fulfilments of which the target's joblet has reported anything."""
    prefix = f"/controlplane/inventory/{target}/"
    return [key for key in world.witness.values if key.startswith(prefix) and not key.endswith("/live")]


def fulfilment_of(pod: Json) -> str:
    return str(pod["metadata"]["labels"]["controlplane/fulfilment"])
