"""What `cpctl verify` itself says of a world, as a person would ask it."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import Iterable
from typing import Any

from tests import encryption
from tests.credentials import TOKEN
from tests.robustness.world import World

# It may listen for as long as a suspicion needs, on a busy machine.
_VERIFY_SECONDS = 120.0


async def verify(world: World, acknowledged: Iterable[str] = ()) -> tuple[int, dict[str, Any]]:
    """The exit code, and the verdict on each promise by its name."""
    record = world.folder / "acknowledged.jsonl"
    record.write_text("".join(json.dumps({"id": order}) + "\n" for order in sorted(acknowledged)))
    places = ("--etcd", world.etcd.endpoint, "--endpoints", ",".join(world.endpoints), "--record", str(record))
    arguments = (*places, *encryption.etcd_client_flags())
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "controlplane.cli.cpctl", "verify", *arguments, "-o", "json"),
        env={**os.environ, "CONTROLPLANE_TOKEN": TOKEN, "CONTROLPLANE_CA_FILE": encryption.ca_file()},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
    )
    async with asyncio.timeout(_VERIFY_SECONDS):
        said, _ = await process.communicate()
    return await process.wait(), {it["promise"]: it for it in json.loads(said)["promises"]}
