"""Where `verify` finds what joblets wrote down."""

from __future__ import annotations

from pathlib import Path

import pytest

from controlplane.cli import evidence
from controlplane.cli.up.layout import Layout
from controlplane.joblet.records import Records, Subject
from controlplane.verify.p3_attempts import Attempts
from controlplane.wire.v1 import cluster_pb2
from tests.clock import ManualClock


def note(folder: Path, target: str, attempt: int = 1) -> None:
    """That a joblet of that folder started it."""
    folder.mkdir(parents=True)
    records = Records(folder, boot="boot", clock=ManualClock())
    records.append("started", Subject("O", "render", 0, attempt, "F", target, ()), pid=0)
    records.close()


def test_records_of_processes_and_of_hosted_joblets_count_alike(tmp_path: Path) -> None:
    layout = Layout(tmp_path)
    note(layout.folder / "joblets" / "local-1", "local-1")
    note(layout.hosted / "replica-1" / "eu-1", "eu-1", attempt=2)
    assert [record.target for record in evidence.joblet_records(tmp_path)] == ["eu-1", "local-1"]


def test_an_attempt_that_two_hosts_started_is_a_broken_promise(tmp_path: Path) -> None:
    layout, attempts = Layout(tmp_path), Attempts()
    for replica in ("replica-1", "replica-2"):
        note(layout.hosted / replica / "eu-1", "eu-1")
    for record in evidence.joblet_records(tmp_path):
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
