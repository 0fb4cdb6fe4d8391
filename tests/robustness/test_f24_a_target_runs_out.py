"""F24: the disk of a target is full, its descriptors are used up, a command writes without end or spoils its own files.

Whatever it is, the target stays Ready, its neighbours succeed, and the promises hold.
"""

from __future__ import annotations

import asyncio
import resource
import signal
from collections.abc import Sequence
from pathlib import Path

import pytest

from controlplane.model.fulfilment import Ended, EndedTask
from controlplane.model.target import TargetStatus
from controlplane.store import codec
from controlplane.verify import history
from controlplane.wire.v1 import cluster_pb2, logs_pb2
from tests.robustness import promises
from tests.robustness.load import an_order
from tests.robustness.parts import Joblet
from tests.robustness.patience import PATIENCE_SECONDS, until
from tests.robustness.small_disk import a_small_disk
from tests.robustness.world import OWN, Plan, World, a_world

KEPT = ("P2", "P3", "P4", "P7")
# A joblet that is killed may take its time to come back on a busy machine.
SETTINGS = cluster_pb2.Settings(joblet_lease=3, heartbeat=0.5, target_grace=PATIENCE_SECONDS, kill_grace=1)
PLAN = Plan(replicas=1, processes=0, simulated=0, settings=SETTINGS)
ROOM = "cpu=1000,real=1000"
# Ends when the test says so, and writes nothing.
WAITS = ("sh", "-c", "while ! test -e {go}; do sleep 0.1; done")


async def submit(world: World, *command: str, target: str = "", unique: str = "") -> str:
    identity = world.client.mint.make()
    await world.client.orders.submit(an_order(identity, command=command, real=True, target=target, unique=unique))
    return identity


async def a_target(world: World, name: str, *flags: str) -> Joblet:
    joblet = world._add(name, ["--driver", "process", "--capacity", ROOM, *flags], ())
    await world.witness.until(lambda: world.witness.targets.get(name) == "Ready", f"{name} is Ready")
    return joblet


def folder_of(joblet: Joblet, order: str, attempt: int = 1) -> Path | None:
    return next(iter(joblet.data.glob(f"runs/{order}.*.{attempt}")), None)


async def until_running(world: World, *orders: str) -> None:
    """Their commands were really started."""

    def started() -> bool:
        return set(orders) <= {record.order for record in promises.recorded(world) if record.event == "started"}

    await until(started, "the commands were started")
    await asyncio.sleep(0.2)


async def until_succeeded(world: World, *orders: str) -> None:
    await promises.final(world, set(orders))
    wrong = {order: ends(world, order) for order in orders if world.witness.phases[order] != "Succeeded"}
    assert not wrong


def ends(world: World, order: str) -> list[EndedTask]:
    prefix, values = f"/controlplane/status/ended/{order}/", world.witness.values
    found = [codec.decode(values[key].value, Ended).tasks for key in sorted(values) if key.startswith(prefix)]
    return sorted((task for tasks in found for task in tasks), key=lambda task: task.attempt)


async def held(world: World, orders: set[str], *kept: str, also: Sequence[str] = ()) -> None:
    """Every target was Ready from its first moment as such to now, or in one of these phases, and promises are kept."""
    await world.witness.caught_up()
    phases: dict[str, list[str]] = {}
    for _, events in history.by_revision(world.witness.changes):
        for event in events:
            if isinstance(event.object, TargetStatus):
                phases.setdefault(event.key, []).append(event.object.phase)
    for key, seen in phases.items():
        assert set(seen[seen.index("Ready") :]) <= {"Ready", *also}, f"{key} did not stay: {seen}"
    for joblet in world.joblets.values():
        assert joblet.running, joblet.log[-2000:]
    for verdict in promises.judge(world, orders):
        if verdict.promise in (kept or KEPT):
            shown = "; ".join(f"{it.key}@{it.revision} {it.why}" for it in verdict.violations[:5])
            assert verdict.ok, f"{verdict.promise}: {shown} {verdict.why}"


@pytest.mark.parametrize("mounted", [True, False], ids=["a small disk", "a limit on the size of files"])
async def test_a_full_disk_costs_no_target_and_no_neighbour(tmp_path: Path, mounted: bool) -> None:
    go = tmp_path / "go"
    waits = [word.format(go=go) for word in WAITS]
    with a_small_disk(tmp_path / "joblets" / "full", mounted=mounted) as disk:
        async with a_world(tmp_path, PLAN) as world:
            joblet = await a_target(world, "full")
            neighbours = [await submit(world, *waits) for _ in range(3)]
            failing = await submit(world, *waits[:2], f"{waits[2]}; exit 7")
            holder = await submit(world, *waits, unique=OWN)
            await until_running(world, *neighbours, failing, holder)
            disk.fill(joblet)
            # Longer than the lease: the holder dies by its own clock, and is not begun again while that lasts.
            await world.witness.until(lambda: ends(world, holder), "the holder is dead")
            assert [task.reason for task in ends(world, holder)] == ["Lost"]
            late = [await submit(world, "true", target="full") for _ in range(3)]
            go.touch()
            await until_succeeded(world, *neighbours)
            await promises.final(world, {failing})
            assert [task.exit_code for task in ends(world, failing)] == [7], "exit codes outlive a full disk"
            assert world.witness.targets == {"full": "Ready"}
            disk.free()
            await until_succeeded(world, *late, holder)
            reasons = {task.reason for order in late for task in ends(world, order)}
            assert reasons <= {"", "Evicted"}, "a start for want of room is tried again"
            await held(world, {*neighbours, failing, holder, *late})


async def test_a_joblet_that_is_killed_on_a_full_disk_comes_back_and_tells_how_its_commands_ended(
    tmp_path: Path,
) -> None:
    go = tmp_path / "go"
    waits = [word.format(go=go) for word in WAITS]
    with a_small_disk(tmp_path / "joblets" / "full") as disk:
        async with a_world(tmp_path, PLAN) as world:
            joblet = await a_target(world, "full")
            orders = [await submit(world, *waits) for _ in range(3)]
            await until_running(world, *orders)
            disk.fill(joblet)
            joblet.kill()
            go.touch()
            joblet.start()
            if not disk.mounted:
                disk.fill(joblet)
            await until_succeeded(world, *orders)
            disk.free()
            after = await submit(world, "true")
            await until_succeeded(world, after)
            assert joblet.running


async def test_a_task_that_fills_the_disk_hurts_itself_only(tmp_path: Path) -> None:
    with a_small_disk(tmp_path / "joblets" / "full") as disk:
        async with a_world(tmp_path, PLAN) as world:
            joblet = await a_target(world, "full")
            neighbours = [await submit(world, "sleep", "6") for _ in range(3)]
            await until_running(world, *neighbours)
            # It fills the disk, fails, and what it wrote stays in its folder; the output of another goes on.
            greedy = await submit(world, "sh", "-c", f"cat /dev/zero > {'ballast' if disk.mounted else '/dev/full'}")
            if not disk.mounted:
                disk.fill(joblet)
            noisy = await submit(world, "sh", "-c", "head -c 16777216 /dev/zero; exit 0")
            await until_succeeded(world, *neighbours, noisy)
            await promises.final(world, {greedy})
            assert world.witness.phases[greedy] == "Failed"
            await held(world, {*neighbours, greedy, noisy}, "P2", "P3", "P7")


async def test_output_without_end_is_kept_short_and_the_log_says_so(tmp_path: Path) -> None:
    async with a_world(tmp_path, PLAN) as world:
        joblet = await a_target(world, "noisy", "--output-limit", "1Mi")
        endless = await submit(world, "yes", "x" * 99)
        neighbours = [await submit(world, "sleep", "2", unique=unique) for unique in ("", "", OWN)]
        folder = await until(lambda: folder_of(joblet, endless), "it has its folder")
        assert folder is not None
        stdout = folder / "stdout"
        await until(lambda: stdout.exists() and stdout.stat().st_size > 64 << 20, "it wrote far more than the limit")
        for _ in range(20):
            assert stdout.stat().st_blocks * 512 <= 2 << 20
            await asyncio.sleep(0.05)
        await until_succeeded(world, *neighbours)
        await world.client.orders.cancel(endless)
        await promises.final(world, {endless})
        assert world.witness.phases[endless] == "Cancelled"
        told = await read_log(world, endless, follow=False)
        assert b" bytes left out ..." in told[:100]
        assert len(told) <= 2 << 20
        assert told.count(b"x" * 99 + b"\n") > 5000
        assert told.count(b"\0") == 0
        await held(world, {endless, *neighbours})


async def read_log(world: World, order: str, *, follow: bool) -> bytes:
    request = logs_pb2.LogsRequest(id=order, stream="stdout", follow=follow)
    return b"".join([chunk.piece.data async for chunk in world.client.orders.logs(request)])


def limit_descriptors(pid: int, most: int) -> int:
    """The limit that was there before."""
    before, hard = resource.prlimit(pid, resource.RLIMIT_NOFILE)
    resource.prlimit(pid, resource.RLIMIT_NOFILE, (most, hard))
    return before


async def test_used_up_descriptors_make_starts_wait_and_lose_no_end(tmp_path: Path) -> None:
    go = tmp_path / "go"
    waits = [word.format(go=go) for word in WAITS]
    async with a_world(tmp_path, PLAN) as world:
        joblet = await a_target(world, "few")
        running = [await submit(world, *waits, unique=unique) for unique in (*[""] * 19, OWN)]
        await until_running(world, *running)
        before = limit_descriptors(joblet.pid, 3)
        late = [await submit(world, "true") for _ in range(20)]
        go.touch()
        await until(lambda: joblet.records().count(b'"event":"ended"') >= len(running), "the commands have ended")
        await asyncio.sleep(1.5)
        assert world.witness.targets == {"few": "Ready"}
        assert world.witness.finals({*running, *late}) == 0, "nothing can be seen or started without descriptors"
        limit_descriptors(joblet.pid, before)
        await until_succeeded(world, *running, *late)
        reasons = {task.reason for order in (*running, *late) for task in ends(world, order)}
        assert reasons <= {"", "Evicted", "Lost"}, "want of descriptors is no StartError"
        await held(world, {*running, *late})


SPOILT = {
    "a FIFO for the progress": "mkfifo $CONTROLPLANE_PROGRESS",
    "a FIFO for the artefacts": "mkfifo $CONTROLPLANE_ARTEFACTS",
    "FIFOs for all": "for f in stdout stderr stop.json stop.json.new end.json end.json.new shim.json; do "
    "rm -f ../$f; mkfifo ../$f; done",
    "links": "for f in stdout stderr progress artefacts end.json end.json.new stop.json.new; do "
    "rm -f ../$f; ln -s /dev/zero ../$f; done",
    "links to the joblet's own": "ln -s ../../secret ../progress; rm ../stderr; ln -s ../../secret ../stderr",
    "folders": "for f in progress artefacts stop.json stop.json.new end.json end.json.new; do mkdir -p ../$f/x; done",
    "no rights": "echo 5 > ../progress; chmod 000 ../progress ../stderr; chmod 000 .",
    "a sparse file of any size": "truncate -s 1T ../progress ../artefacts; rm ../stderr; truncate -s 1T ../stderr",
    "a line without end": "head -c 3000000 /dev/zero | tr '\\0' 1 > ../progress; cp ../progress ../artefacts",
    "deep nonsense": "yes '[' | head -100000 | tr -d '\\n' > ../end.json; cp ../end.json ../stop.json",
    "numbers beyond all": 'echo \'{"how":"exited","code":1e300}\' > ../end.json; '
    'echo \'{"pid":99999999999999999999,"ticks":-1,"boot":"","started":""}\' > ../shim.json',
    "no spec": "rm ../spec.json",
    "a folder for the spec": "rm ../spec.json; mkdir ../spec.json",
    "no folder": "rm -rf ../../$(basename $(dirname $PWD))",
    "another's spec": "cp ../../*.9.1/spec.json ../spec.json 2>/dev/null; true",
    "a socket": "python3 -c \"import socket; socket.socket(socket.AF_UNIX).bind('../progress')\"",
}


@pytest.mark.parametrize("restarted", [False, True], ids=["while it runs", "and a restarted joblet"])
async def test_whatever_a_task_makes_of_its_files_costs_no_target_and_no_neighbour(
    tmp_path: Path, restarted: bool
) -> None:
    async with a_world(tmp_path, PLAN) as world:
        joblet = await a_target(world, "spoilt")
        neighbours = [await submit(world, "sleep", "5", unique=unique) for unique in ("", "", OWN)]
        ending = {name: await submit(world, "sh", "-c", f"{act}; sleep 1; exit 3") for name, act in SPOILT.items()}
        lasting = {name: await submit(world, "sh", "-c", f"{act}; sleep 1000") for name, act in SPOILT.items()}
        await until_running(world, *neighbours)
        await asyncio.sleep(1.5)
        if restarted:
            joblet.signal(signal.SIGKILL)
            await joblet.ended()
            joblet.start()
        await until_succeeded(world, *neighbours)
        for order in lasting.values():
            await world.client.orders.cancel(order)
        await promises.final(world, {*ending.values(), *lasting.values()})
        assert world.witness.targets == {"spoilt": "Ready"}
        after = await submit(world, "true")
        await until_succeeded(world, after)
        said = " ".join(task.message for order in ending.values() for task in ends(world, order))
        assert (joblet.data / "secret").read_text().strip() not in said, "a link makes no file public"
        phases = ("Suspect",) if restarted else ()
        await held(world, {*neighbours, *ending.values(), *lasting.values(), after}, also=phases)
