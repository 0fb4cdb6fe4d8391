"""Where `verify` finds what joblets wrote down."""

from __future__ import annotations

from pathlib import Path

from controlplane.cli import evidence
from controlplane.cli.up.layout import Layout
from controlplane.joblet.records import Records, Subject
from controlplane.verify.p3_attempts import Attempts
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
