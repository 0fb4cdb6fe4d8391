"""F1: SIGKILL the leader."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path

import msgspec

from controlplane.store import codec, keys
from tests.robustness import promises
from tests.robustness.conftest import Tell
from tests.robustness.load import Load, load
from tests.robustness.recovery import Fault
from tests.robustness.witness import Seen
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


class Stamped(msgspec.Struct):
    epoch: int = 0


def folded_before(world: World, first: Seen) -> list[str]:
    """What else the new leader wrote before its first cycle was committed."""
    earlier = (change for change in world.witness.changes if change.revision < first.revision)
    return [
        change.key
        for change in earlier
        if change.key.startswith(f"{keys.ROOT}status/")
        and change.value is not None
        and codec.decode(change.value.value, Stamped).epoch == first.epoch
    ]


async def test_a_killed_leader_is_followed_within_a_second_and_nothing_is_lost(tmp_path: Path, tell: Tell) -> None:
    async with a_world(tmp_path) as world, load(world.endpoints) as running:
        rates = await running.warm()
        fault = Fault(world)
        world.leader.kill()
        tell(await fault.followed(within=1.0, rates=rates))
        cycle = world.witness.cycle_after(fault.moment, above_epoch=fault.epoch)
        assert cycle is not None
        assert not folded_before(world, cycle), "placing goes on before everything else"
        await asyncio.sleep(1.0)
        await promises.kept(world, running)
        world.replicas[fault.leader].start()
        await world.ready()
        code, said = await verify(world, running)
        assert code == 0
        assert all(said[promise] for promise in ("P1", "P2", "P3", "P4", "P5", "P7", "P8", "P9")), said
