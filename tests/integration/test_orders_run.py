"""Orders through the whole system: two replicas, a target of real commands, simulated ones; as a client sees them."""

from __future__ import annotations

import signal
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any

import pytest

from controlplane.client import Client
from controlplane.model import errors
from controlplane.model.fulfilment import Fulfilment
from controlplane.store import codec, keys
from controlplane.wire.v1 import common_pb2, jobs_pb2, orders_pb2, packets_pb2
from tests.credentials import TOKEN
from tests.robustness.patience import until
from tests.robustness.witness import Witness
from tests.robustness.world import OWN, Plan, World, a_world


@pytest.fixture(scope="module")
async def world(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[World]:
    plan = Plan(replicas=2, processes=1, simulated=1, ttl=10)
    async with a_world(tmp_path_factory.mktemp("world"), plan) as world:
        yield world


async def submit(
    world: World,
    command: Sequence[str] = ("true",),
    *,
    count: int = 1,
    room: Mapping[str, float] | None = None,
    priority: int = 50,
    **job: Any,
) -> str:
    requests = common_pb2.Quantities(of=room or {"real": 1.0})
    part = packets_pb2.PacketJob(
        job=packets_pb2.JobRef(object=jobs_pb2.Job(command=command, requests=requests, **job)), count=count
    )
    packet = orders_pb2.PacketRef(object=packets_pb2.Packet(jobs=[part]))
    order = orders_pb2.Order(id=world.client.mint.make(), packet=packet, priority=priority)
    return (await world.client.orders.submit(order)).item.id


async def ended(world: World, order: str, phase: str) -> orders_pb2.Task:
    """Its first task, once the order is in that final phase."""
    witness = world.witness
    await witness.until(lambda: witness.finals({order}), "the order is final")
    assert witness.phases[order] == phase
    listed = await world.client.orders.tasks(orders_pb2.ListTasksRequest(id=order, min_revision=witness.revision))
    return listed.items[0]


def placed(witness: Witness, order: str) -> list[tuple[int, Fulfilment]]:
    """Every fulfilment that the order ever had, with the revision at which it was placed."""
    found = []
    for change in witness.changes:
        if change.value is not None and change.key.startswith(f"{keys.ROOT}desired/"):
            fulfilment = codec.decode(change.value.value, Fulfilment)
            if fulfilment.order == order and change.value.create_revision == change.revision:
                found.append((change.revision, fulfilment))
    return found


def run_folder(world: World, order: str) -> Any:
    return next(world.joblets["local-1"].data.glob(f"runs/{order}*"))


async def test_a_command_runs_and_its_output_is_kept(world: World) -> None:
    order = await submit(world, ["sh", "-c", 'echo "$CONTROLPLANE_ORDER on $CONTROLPLANE_TARGET"'])
    task = await ended(world, order, "Succeeded")
    assert (task.phase, task.exit_code, task.attempt, task.target) == ("Succeeded", 0, 1, "local-1")
    assert (run_folder(world, order) / "stdout").read_text() == f"{order} on local-1\n"


async def test_a_command_that_fails_fails_its_order_with_its_exit_code(world: World) -> None:
    task = await ended(world, await submit(world, ["sh", "-c", "exit 7"]), "Failed")
    assert (task.phase, task.exit_code, task.attempt) == ("Failed", 7, 1)


async def test_a_command_that_is_not_there_fails_its_order_and_says_so(world: World) -> None:
    task = await ended(world, await submit(world, ["no-such-command"]), "Failed")
    assert (task.phase, task.reason) == ("Failed", "StartError")
    assert task.message == "no-such-command: No such file or directory"


async def test_the_last_words_of_a_failed_command_stay_with_its_task(world: World) -> None:
    script = f"echo {'x' * 500} >&2; echo the last words >&2; exit 3"
    task = await ended(world, await submit(world, ["sh", "-c", script]), "Failed")
    assert (task.reason, len(task.message)) == ("Failed", 200)
    assert task.message.startswith("…x")
    assert task.message.endswith("x\nthe last words")


async def test_a_command_over_its_time_limit_is_ended(world: World) -> None:
    task = await ended(world, await submit(world, ["sleep", "60"], time_limit=0.5), "Failed")
    assert (task.phase, task.reason) == ("Failed", "TimedOut")


async def test_progress_and_artefacts_reach_the_client(world: World) -> None:
    script = 'echo 40 > "$CONTROLPLANE_PROGRESS"; echo https://example.com/a > "$CONTROLPLANE_ARTEFACTS"'
    task = await ended(world, await submit(world, ["sh", "-c", script]), "Succeeded")
    assert list(task.artefacts) == ["https://example.com/a"]


async def test_a_cancelled_order_has_its_command_killed(world: World) -> None:
    order = await submit(world, ["sh", "-c", "echo $$ > pid; exec sleep 60"])
    work = world.joblets["local-1"].data
    file = (await until(lambda: list(work.glob(f"runs/{order}*/work/pid")), "it has begun"))[0]
    pid = (await until(file.read_text, "it has said who it is")).strip()
    await world.client.orders.cancel(order)
    task = await ended(world, order, "Cancelled")
    assert task.phase == "Cancelled"
    await until(lambda: not _runs(pid), "the command is gone")


def _runs(pid: str) -> bool:
    try:
        with open(f"/proc/{pid}/cmdline") as file:
            return "sleep" in file.read()
    except FileNotFoundError:
        return False


async def test_a_paused_order_starts_nothing_until_it_is_resumed(world: World) -> None:
    """The one room is taken when the order comes, and free again while it is paused."""
    blocker = await submit(world, ["sleep", "0.5"], room={"real": 4.0})
    order = await submit(world, room={"real": 4.0})
    await world.client.orders.pause(order)
    await ended(world, blocker, "Succeeded")
    other = await submit(world, room={"real": 4.0}, priority=1)
    await ended(world, other, "Succeeded")
    assert placed(world.witness, order) == []
    await world.client.orders.resume(order)
    await ended(world, order, "Succeeded")


async def test_the_higher_priority_goes_first_where_room_is_scarce(world: World) -> None:
    await submit(world, ["sleep", "0.5"], room={"real": 4.0})
    low = await submit(world, room={"real": 3.0}, priority=10)
    lifted = await submit(world, room={"real": 3.0}, priority=5)
    high = await submit(world, room={"real": 3.0}, priority=90)
    await world.client.orders.update(orders_pb2.UpdateOrderRequest(id=lifted, priority=50))
    for order in (low, lifted, high):
        await ended(world, order, "Succeeded")
    revisions = [placed(world.witness, order)[0][0] for order in (high, lifted, low)]
    assert revisions == sorted(revisions)


async def test_tasks_that_need_one_unique_resource_run_one_after_the_other(world: World) -> None:
    order = await submit(world, count=5, room={"sim": 1.0}, resources=[OWN])
    await ended(world, order, "Succeeded")
    claims = [change for change in world.witness.changes if change.key == keys.claim(OWN)]
    assert [change.value is not None for change in claims] == [True, False] * 5


async def test_an_order_that_fits_nowhere_says_why(world: World) -> None:
    order = await submit(world, room={"real": 400.0})
    shown = await world.client.orders.get(order)
    assert shown.status.phase == "Pending"
    assert [reason.count for reason in shown.status.reasons] == [1]
    await world.client.orders.cancel(order)
    await ended(world, order, "Cancelled")


async def test_what_one_replica_has_acknowledged_any_other_shows(world: World) -> None:
    first, second = [Client([endpoint], token=TOKEN) for endpoint in world.endpoints]
    async with first, second:
        for _ in range(20):
            order = await submit(world, room={"sim": 1.0})
            request = common_pb2.ListRequest(min_revision=world.client.revision)
            for client in (first, second):
                assert order in [item.id for item in (await client.orders.page(request)).items]


async def test_orders_are_accepted_while_nobody_leads(world: World) -> None:
    leader, standby = world.leader, world.standbys[0]
    epoch = world.witness.epoch
    leader.signal(signal.SIGSTOP)
    try:
        async with Client([standby.grpc], token=TOKEN) as client:
            order = orders_pb2.Order(id=client.mint.make(), packet=_simulated())
            revision = (await client.orders.submit(order)).revision
        await world.witness.until(lambda: world.witness.epoch > epoch, "another leads")
    finally:
        leader.signal(signal.SIGCONT)
    assert revision < world.witness.terms[-1].revision, "it was accepted before anybody led again"
    await ended(world, order.id, "Succeeded")


def _simulated() -> orders_pb2.PacketRef:
    job = jobs_pb2.Job(command=["true"], requests=common_pb2.Quantities(of={"sim": 1.0}))
    part = packets_pb2.PacketJob(job=packets_pb2.JobRef(object=job), count=1)
    return orders_pb2.PacketRef(object=packets_pb2.Packet(jobs=[part]))


async def test_an_order_that_nobody_knows_is_not_found(world: World) -> None:
    with pytest.raises(errors.NotFound):
        await world.client.orders.get(world.client.mint.make())
