"""`controlplane up` and `down` as a user meets them: real etcd, real replica, real joblet, real commands."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from controlplane.aio import processes
from controlplane.standalone import recorded_processes
from controlplane.standalone.layout import Layout
from tests.integration.folder import Folder, eventually


@pytest.mark.timeout(400)
def test_an_order_outlives_its_supervisor_its_replica_and_a_down_and_up(folder: Folder) -> None:
    started = folder.up()
    assert started.returncode == 0, started.stderr
    assert started.stdout.startswith("The control plane is up.")
    assert sorted(folder.up_json()) == ["etcd", "etcd_pids", "joblets", "replicas", "tls", "token_file"]
    again = folder.up()
    assert (again.returncode, again.stdout) == (1, "")
    assert "error: AlreadyExists: a control plane already runs from" in again.stderr

    order = folder.submit("sleep", "600")
    eventually(lambda: folder.task(order)["phase"] == "Running")

    [replica] = folder.up_json()["replicas"]
    os.kill(replica["pid"], signal.SIGKILL)
    eventually(lambda: folder.up_json()["replicas"][0]["pid"] != replica["pid"])
    assert folder.up_json()["replicas"][0]["grpc"] == replica["grpc"]

    supervisor = recorded_processes.supervisor(Layout(folder.path))
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
    supervisor = recorded_processes.supervisor(Layout(folder.path))
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
