"""F1: SIGKILL the leader."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path

from tests.robustness import promises
from tests.robustness.conftest import Tell
from tests.robustness.load import Load, load
from tests.robustness.recovery import Fault
from tests.robustness.world import World, a_world


async def verify(world: World, load: Load) -> tuple[int, dict[str, bool | None]]:
    """The exit code of `cpctl verify`, and what it says of each promise."""
    record = world.folder / "acknowledged.jsonl"
    record.write_text("".join(json.dumps({"id": order}) + "\n" for order in sorted(load.acknowledged)))
    arguments = ("--etcd", world.etcd.endpoint, "--endpoints", ",".join(world.endpoints), "--record", str(record))
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "controlplane.cli.cpctl", "verify", *arguments, "-o", "json"),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
    )
    said, _ = await process.communicate()
    return await process.wait(), {it["promise"]: it["ok"] for it in json.loads(said)["promises"]}


async def test_a_killed_leader_is_followed_within_a_second_and_nothing_is_lost(tmp_path: Path, tell: Tell) -> None:
    async with a_world(tmp_path) as world, load(world.endpoints) as running:
        rates = await running.warm()
        fault = Fault(world)
        world.leader.kill()
        tell(await fault.followed(within=1.0, rates=rates))
        await asyncio.sleep(1.0)
        await promises.kept(world, running)
        world.replicas[fault.leader].start()
        await world.ready()
        code, said = await verify(world, running)
        assert code == 0
        assert all(said[promise] for promise in ("P1", "P2", "P3", "P4", "P5", "P7", "P8", "P9")), said
