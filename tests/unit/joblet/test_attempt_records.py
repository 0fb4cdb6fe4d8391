"""What was really started and ended: never lost, never torn, never without bound."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from controlplane.joblet import attempt_records
from controlplane.joblet.attempt_records import AttemptIdentity, AttemptRecords
from tests.clock import ManualClock

IDENTITY = AttemptIdentity("O", "job-0", 0, 1, "F", "T", ())


@pytest.fixture
def kept(tmp_path: Path) -> AttemptRecords:
    return AttemptRecords(tmp_path, boot="b", clock=ManualClock())


def events(path: Path) -> list[str]:
    return [json.loads(line)["event"] for line in path.read_text().splitlines() if line.startswith("{")]


def fill(kept: AttemptRecords, path: str) -> None:
    """From now on every write goes to a full disk, or to a file again."""
    file = os.open(path, os.O_WRONLY | os.O_APPEND)
    os.dup2(file, kept._file)
    os.close(file)


def test_a_start_that_cannot_be_recorded_is_told(kept: AttemptRecords, tmp_path: Path) -> None:
    fill(kept, "/dev/full")
    with pytest.raises(OSError, match="No space left"):
        kept.append("started", IDENTITY, pid=1)
    kept.close()


async def test_an_end_is_recorded_as_soon_as_there_is_room(
    kept: AttemptRecords, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(attempt_records, "AGAIN_SECONDS", 0.0)
    fill(kept, "/dev/full")
    kept.append_later("ended", IDENTITY, pid=1, exit_code=0)
    kept.append_later("ended", IDENTITY, pid=2, exit_code=0)
    assert events(tmp_path / "records.jsonl") == []
    fill(kept, str(tmp_path / "records.jsonl"))
    kept._write_late()
    assert events(tmp_path / "records.jsonl") == ["ended", "ended"]
    kept.close()


def test_a_large_file_is_put_aside_and_an_old_one_goes(
    kept: AttemptRecords, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(attempt_records, "MOST_BYTES", 1)
    kept.append("started", IDENTITY, pid=1)
    kept.trim()
    kept.append("ended", IDENTITY, pid=1)
    kept.trim()
    kept.append("started", IDENTITY, pid=2)
    numbered = sorted(tmp_path.glob("records.0*.jsonl"))
    for path in numbered:
        stamp = ManualClock().wall().timestamp()
        os.utime(path, (stamp, stamp))
    assert [events(path) for path in sorted(tmp_path.glob("records*.jsonl"))] == [["started"], ["ended"], ["started"]]
    os.utime(numbered[0], (0, 0))
    monkeypatch.setattr(attempt_records, "MOST_BYTES", 1 << 20)
    kept.trim()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["records.00000002.jsonl", "records.jsonl"]
    kept.close()


def test_all_of_them_together_stay_below_a_bound(
    kept: AttemptRecords, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(attempt_records, "MOST_BYTES", 1)
    monkeypatch.setattr(attempt_records, "MOST_BYTES_IN_ALL", 400)
    stamp = ManualClock().wall().timestamp()
    for number in range(10):
        kept.append("started", IDENTITY, pid=number)
        kept.trim()
        for path in tmp_path.glob("records.0*.jsonl"):
            os.utime(path, (stamp, stamp))
    assert sum(path.stat().st_size for path in tmp_path.iterdir()) <= 400
    kept.close()
