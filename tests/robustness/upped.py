"""A running `controlplane up`, as a person starts it, with a witness beside it."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from controlplane.client import Client
from controlplane.client.caller import CallTimeouts
from controlplane.model.target import Live
from controlplane.replica_settings import DEFAULT_TTL
from controlplane.store import codec, keys
from controlplane.wire.v1 import cluster_pb2, resources_pb2
from tests import encryption
from tests.credentials import TOKEN, leave_token
from tests.robustness.parts import ROOT, Joblet, Replica
from tests.robustness.patience import PATIENCE_SECONDS
from tests.robustness.witness import Witness
from tests.robustness.world import OWN, UNIQUE, Plan, World

UP_SECONDS = 150.0


class Upped(World):
    """What `up` runs, by its folder. It supervises its parts itself: here they are only found, and sent signals."""

    def __init__(self, folder: Path, plan: Plan, witness: Witness) -> None:
        self.folder = folder
        self.plan = plan
        self.ttl = DEFAULT_TTL
        self.witness = witness
        told = self.up_json()
        self.replicas: dict[str, Replica] = {}
        self._endpoints = tuple(replica["grpc"] for replica in told["replicas"])
        self.joblets: dict[str, Joblet] = {}
        for joblet in told["joblets"]:
            self.know(joblet["target"])
        self._client: Client | None = None

    def know(self, target: str) -> None:
        """Where its joblet keeps its records."""
        self.joblets[target] = Joblet(target, self.folder / "joblets", endpoints=self._endpoints, flags=())

    @property
    def endpoints(self) -> tuple[str, ...]:
        return self._endpoints

    def up_json(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads((self.folder / "up.json").read_text())
        return found

    def pid_of(self, target: str) -> int:
        pids = {joblet["target"]: joblet["pid"] for joblet in self.up_json()["joblets"]}
        return int(pids[target])

    def signal(self, target: str, number: signal.Signals) -> int:
        """To the target's joblet; its pid."""
        pid = self.pid_of(target)
        os.kill(pid, number)
        return pid

    async def cpctl(self, *arguments: str, code: int = 0) -> Any:
        """The JSON that it prints; with another exit code than 0, what it says instead."""
        told = await call("cpctl", self.folder, *arguments, "-o", "json")
        assert told.code == code, told
        return json.loads(told.out) if code == 0 else told.err

    async def phase(self, target: str, *phases: str) -> None:
        await self.witness.until(
            lambda: self.witness.targets.get(target) in phases, f"{target} is {phases}", seconds=UP_SECONDS
        )

    async def furnish(self, settings: cluster_pb2.Settings | None) -> None:
        objects = [
            cluster_pb2.Object(resource=resources_pb2.Resource(name=name, key="LICENCE", value=name, unique=True))
            for name in (*UNIQUE, OWN)
        ]
        if settings is not None:
            objects.append(cluster_pb2.Object(settings=settings))
        await self.client.cluster.apply(cluster_pb2.ApplyRequest(objects=objects))

    @property
    def client(self) -> Client:
        if self._client is None:
            timeouts = CallTimeouts(attempt_seconds=5.0, total_seconds=PATIENCE_SECONDS)
            self._client = Client(self._endpoints, token=TOKEN, ca_file=encryption.ca_file(), timeouts=timeouts)
        return self._client

    async def restart_joblets(self, targets: Iterable[str]) -> None:
        """Kills them; returns when `up` has started them again and each has said hello."""
        await self.witness.caught_up()
        before = {target: self._instance(target) for target in targets}
        for target in before:
            self.signal(target, signal.SIGKILL)
        await self.witness.until(
            lambda: all(self._instance(target) not in ("", was) for target, was in before.items()), "they are back"
        )

    def _instance(self, target: str) -> str:
        """Of the life that its joblet leads now; empty while no session is there."""
        live = self.witness.values.get(keys.live(target))
        return codec.decode(live.value, Live).instance if live is not None else ""


class Told:
    def __init__(self, code: int, out: str, err: str) -> None:
        self.code, self.out, self.err = code, out, err

    def __repr__(self) -> str:
        return f"exit code {self.code}: {self.out[-500:]} {self.err[-2000:]}"


async def call(module: str, folder: Path, *arguments: str) -> Told:
    """The options come first: behind `--` they would belong to the command."""
    argv = [sys.executable, "-m", f"controlplane.cli.{module}", arguments[0], "--data-dir", str(folder)]
    process = await asyncio.create_subprocess_exec(
        *argv, *arguments[1:], cwd=ROOT, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
    )
    try:
        async with asyncio.timeout(UP_SECONDS):
            out, err = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    return Told(process.returncode or 0, out.decode(), err.decode())


@asynccontextmanager
async def an_up(
    folder: Path, *, replicas: int = 3, targets: int = 2, settings: cluster_pb2.Settings | None = None
) -> AsyncIterator[Upped]:
    """Ready, with these settings for every session, and stopped afterwards."""
    try:
        leave_token(folder)
        arguments = ("up", "--detach", "--replicas", str(replicas), "--targets", str(targets))
        told = await call("controlplane", folder, *arguments)
        assert told.code == 0, told
        witness = Witness(json.loads((folder / "up.json").read_text())["etcd"][0])
        async with witness.watching():
            upped = Upped(folder, Plan(replicas=replicas, processes=targets, simulated=0), witness)
            await upped.furnish(settings)
            if settings is not None:
                # What they were told when they connected would stay so.
                await upped.restart_joblets(upped.joblets)
            for target in upped.joblets:
                await upped.phase(target, "Ready")
            try:
                yield upped
            finally:
                for joblet in upped.up_json()["joblets"]:
                    os.kill(joblet["pid"], signal.SIGCONT)
                await upped.client.close()
    finally:
        await call("controlplane", folder, "down")
