"""Where `verify` finds what joblets wrote down."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from controlplane.aio import processes
from controlplane.aio.clock import suspended_seconds
from controlplane.joblet.attempt_records import AttemptIdentity, AttemptRecords
from controlplane.standalone.layout import Layout
from controlplane.verify.gathering import evidence
from controlplane.verify.joblet_records import JobletRecord
from controlplane.verify.p3_attempts import AttemptsCheck
from controlplane.wire.v1 import cluster_pb2
from tests.clock import ManualClock


def note(folder: Path, target: str, attempt: int = 1) -> None:
    """That a joblet of that folder started it."""
    folder.mkdir(parents=True)
    records = AttemptRecords(folder, boot="boot", clock=ManualClock())
    records.append("started", AttemptIdentity("O", "render", 0, attempt, "F", target, ()), pid=0)
    records.close()


def test_records_of_processes_and_of_hosted_joblets_count_alike(tmp_path: Path) -> None:
    layout = Layout(tmp_path)
    note(layout.folder / "joblets" / "local-1", "local-1")
    note(layout.hosted / "replica-1" / "eu-1", "eu-1", attempt=2)
    assert [record.target for record in evidence.read_joblet_records(tmp_path)] == ["eu-1", "local-1"]


def test_an_attempt_that_two_hosts_started_is_a_broken_promise(tmp_path: Path) -> None:
    layout, attempts = Layout(tmp_path), AttemptsCheck()
    for replica in ("replica-1", "replica-2"):
        note(layout.hosted / replica / "eu-1", "eu-1")
    for record in evidence.read_joblet_records(tmp_path):
        attempts.record(record)
    assert attempts.duplicates == [("O", "render", 0, 1)]
    assert not attempts.verdict().ok


@pytest.mark.parametrize(
    ("revision", "age", "why"),
    [
        (66, 0.5, ""),
        (70, evidence.CACHE_SECONDS, ""),
        (24, 0.5, "stayed behind revision 66, which etcd had 10 s before"),
        (66, 60.0, "was last known to hold all that etcd held 60.0 s before"),
    ],
)
def test_a_cache_is_behind_by_its_revision_or_by_its_age(revision: int, age: float, why: str) -> None:
    status = cluster_pb2.StatusResponse(revision=revision, cache_age_seconds=age)
    assert evidence.why_behind(status, newest=66) == why


@pytest.fixture
def shim(tmp_path: Path) -> Iterator[processes.Process]:
    """A process that looks like a shim."""
    with subprocess.Popen(("sh", "-c", "sleep 600; :", str(tmp_path / "shim.py"), str(tmp_path))) as child:
        processes.wait_shown(child.pid, 10.0)
        process = processes.of(child.pid)
        assert process is not None
        yield process
        child.kill()


def a_record(pid: int, boot: str, monotonic: float) -> JobletRecord:
    return JobletRecord("started", "O", "render", 0, 1, "F", "t", (), pid, monotonic, boot)


def test_an_attempt_lives_while_the_shim_that_recorded_it_does(shim: processes.Process) -> None:
    assert evidence.lives(a_record(shim.pid, shim.boot, time.monotonic()))
    assert not evidence.lives(a_record(shim.pid, "another-boot", time.monotonic()))
    processes.stop([shim])
    assert not evidence.lives(a_record(shim.pid, shim.boot, time.monotonic()))


def test_a_shim_that_started_after_the_record_is_another(shim: processes.Process) -> None:
    before = shim.started_seconds - suspended_seconds() - 1.0
    assert not evidence.lives(a_record(shim.pid, shim.boot, before))


def test_a_process_that_is_no_shim_is_no_attempt() -> None:
    with subprocess.Popen(("sleep", "600")) as child:
        process = processes.of(child.pid)
        assert process is not None
        assert not evidence.lives(a_record(process.pid, process.boot, time.monotonic()))
        child.kill()
