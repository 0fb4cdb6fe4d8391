"""`controlplane up` and `down` as a user meets them: real etcd, real replica, real joblet, real commands."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from controlplane.cli.up import leftovers, processes
from controlplane.cli.up.layout import Layout

SECONDS = 100.0


class Folder:
    def __init__(self, path: Path) -> None:
        self.path = path

    def call(self, module: str, *arguments: str) -> subprocess.CompletedProcess[str]:
        """The options come first: behind `--` they would belong to the command."""
        argv = [sys.executable, "-m", f"controlplane.cli.{module}", arguments[0], "--data-dir", str(self.path)]
        return subprocess.run([*argv, *arguments[1:]], capture_output=True, text=True, timeout=SECONDS)

    def up(self) -> subprocess.CompletedProcess[str]:
        return self.call("controlplane", "up", "--detach", "--replicas", "1", "--targets", "1")

    def cpctl(self, *arguments: str) -> Any:
        answer = self.call("cpctl", *arguments, "-o", "json")
        assert answer.returncode == 0, answer.stderr
        return json.loads(answer.stdout)

    def up_json(self) -> Any:
        return json.loads((self.path / "up.json").read_text())

    def submit(self, *command: str) -> str:
        file = self.path / "order.json"
        file.write_text(json.dumps({"kind": "Order", "packet": {"jobs": [{"job": {"command": list(command)}}]}}))
        identity: str = self.cpctl("submit", "-f", str(file))["id"]
        return identity

    def task(self, order: str) -> Any:
        return self.cpctl("get", "order", order)["tasks"][0]

    def alive(self) -> list[str]:
        """Every process that names this folder."""
        found = []
        for entry in Path("/proc").iterdir():
            try:
                arguments = (entry / "cmdline").read_bytes() if entry.name.isdigit() else b""
            except OSError:
                continue
            if str(self.path).encode() in arguments:
                found.append(arguments.replace(b"\0", b" ").decode())
        return found


def eventually(holds: Callable[[], bool]) -> None:
    give_up = time.monotonic() + SECONDS
    while not holds():
        assert time.monotonic() < give_up, "it never came true"
        time.sleep(0.1)


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Folder]:
    made = Folder(tmp_path / "data")
    yield made
    made.call("controlplane", "down")


@pytest.mark.timeout(400)
def test_an_order_outlives_its_supervisor_its_replica_and_a_down_and_up(folder: Folder) -> None:
    started = folder.up()
    assert started.returncode == 0, started.stderr
    assert started.stdout.startswith("The control plane is up.")
    assert sorted(folder.up_json()) == ["etcd", "etcd_pids", "joblets", "replicas"]
    again = folder.up()
    assert (again.returncode, again.stdout) == (1, "")
    assert "error: AlreadyExists: a control plane already runs from" in again.stderr

    order = folder.submit("sleep", "600")
    eventually(lambda: folder.task(order)["phase"] == "Running")

    [replica] = folder.up_json()["replicas"]
    os.kill(replica["pid"], signal.SIGKILL)
    eventually(lambda: folder.up_json()["replicas"][0]["pid"] != replica["pid"])
    assert folder.up_json()["replicas"][0]["grpc"] == replica["grpc"]

    supervisor = leftovers.supervisor(Layout(folder.path))
    assert supervisor is not None
    supervisor.send(signal.SIGKILL)
    processes.wait_gone([supervisor], 10.0)
    assert folder.up().returncode == 0
    task = folder.task(order)
    assert (task["phase"], task["attempt"]) == ("Running", 1)

    stopped = folder.call("controlplane", "down")
    assert (stopped.returncode, stopped.stdout) == (0, "")
    assert folder.alive() == []
    assert folder.call("cpctl", "get", "orders").returncode == 1

    assert folder.up().returncode == 0
    eventually(lambda: bool(folder.task(order)["attempt"] == 2 and folder.task(order)["phase"] == "Running"))


@pytest.mark.timeout(200)
def test_down_cleans_up_after_a_killed_supervisor(folder: Folder) -> None:
    assert folder.up().returncode == 0
    supervisor = leftovers.supervisor(Layout(folder.path))
    assert supervisor is not None
    supervisor.send(signal.SIGKILL)
    processes.wait_gone([supervisor], 10.0)
    assert folder.call("controlplane", "down").returncode == 0
    assert folder.alive() == []


@pytest.mark.timeout(200)
def test_a_start_that_fails_says_why_and_leaves_nothing_running(folder: Folder) -> None:
    (folder.path / "etcd").parent.mkdir(parents=True)
    (folder.path / "etcd").write_text("not a folder")
    failed = folder.up()
    assert (failed.returncode, failed.stdout) == (1, "")
    assert "etcd died 3 times" in failed.stderr
    # Who told of the failure may still be on its way out.
    eventually(lambda: folder.alive() == [])
    assert not (folder.path / "up.json").exists()


@pytest.mark.timeout(300)
def test_two_that_start_at_the_same_moment_share_no_address(tmp_path: Path) -> None:
    folders = [Folder(tmp_path / name) for name in ("one", "other")]
    try:
        with ThreadPoolExecutor() as pool:
            started = list(pool.map(Folder.up, folders))
        assert [answer.returncode for answer in started] == [0, 0], [answer.stderr for answer in started]
        one, other = ({*up["etcd"], *_addresses(up)} for up in (folder.up_json() for folder in folders))
        assert not one & other
    finally:
        for folder in folders:
            folder.call("controlplane", "down")


def _addresses(up: Any) -> Iterator[str]:
    for replica in up["replicas"]:
        yield from (replica["grpc"], replica["http"])
