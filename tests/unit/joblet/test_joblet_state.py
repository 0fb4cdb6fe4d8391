"""What a joblet still knows after it was killed."""

from __future__ import annotations

import errno
from collections.abc import Callable
from pathlib import Path

import pytest

from controlplane.aio import files
from controlplane.joblet.joblet_state import MOST_SESSIONS, JobletFolder
from controlplane.model.errors import AlreadyExists


def reopened(folder: JobletFolder, boot: str = "boot-1") -> JobletFolder:
    folder.close()
    return JobletFolder(folder.path, boot)


def test_a_folder_keeps_its_secret_and_sessions(tmp_path: Path) -> None:
    first = JobletFolder(tmp_path / "new", "boot-1")
    first.remember("s-1")
    second = reopened(first)
    assert second.secret == first.secret
    assert second.trusts("s-1")
    assert not second.trusts("s-2")
    second.close()


def test_two_joblets_cannot_live_in_one_folder(tmp_path: Path) -> None:
    first = JobletFolder(tmp_path, "boot-1")
    with pytest.raises(AlreadyExists, match="another joblet lives in"):
        JobletFolder(tmp_path, "boot-1")
    reopened(first).close()


def test_after_a_reboot_no_session_is_trusted_and_nothing_is_confirmed(tmp_path: Path) -> None:
    first = JobletFolder(tmp_path, "boot-1")
    first.remember("s-1")
    first.confirm(100.0, 6.0)
    second = reopened(first, "boot-2")
    assert not second.trusts("s-1")
    assert second.confirmed_until == 0.0
    second.close()


def test_confirmations_count_from_the_sending_and_never_go_back(tmp_path: Path) -> None:
    folder = JobletFolder(tmp_path, "boot-1")
    folder.confirm(100.0, 6.0)
    folder.confirm(99.0, 6.0)
    assert folder.confirmed_until == 106.0
    assert (tmp_path / "confirmed").read_text() == "106.000000 100.000000 boot-1\n"
    folder.close()


def test_a_gap_in_the_confirmations_is_written_down_also_across_a_restart(tmp_path: Path) -> None:
    first = JobletFolder(tmp_path, "boot-1")
    first.confirm(100.0, 6.0)
    second = reopened(first)
    second.confirm(105.0, 6.0)
    assert (tmp_path / "confirmed").read_text().split()[1] == "100.000000"
    second.confirm(112.0, 6.0)
    assert (tmp_path / "confirmed").read_text().split()[1] == "112.000000"
    second.close()


def test_a_folder_knows_its_etcd_and_the_attempts_from_before_it(tmp_path: Path) -> None:
    first = JobletFolder(tmp_path, "boot-1")
    assert (first.cluster, first.known_attempt) == ("", 0)
    first.bind_to_cluster("old")
    first.highest_attempt.reach(2)
    first.highest_attempt.reach(1)
    second = reopened(first)
    assert (second.cluster, second.known_attempt, second.highest_attempt.value) == ("old", 0, 2)
    second.bind_to_cluster("new")
    second.highest_attempt.reach(7)
    second.bind_to_cluster("new")
    third = reopened(second, "boot-2")
    assert (third.cluster, third.known_attempt, third.highest_attempt.value) == ("new", 2, 7)
    third.close()


@pytest.fixture
def full(monkeypatch: pytest.MonkeyPatch) -> Callable[[bool], None]:
    real = files.write_by_rename_at

    def refuse(folder: int, name: str, content: bytes) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    return lambda is_full: monkeypatch.setattr(files, "write_by_rename_at", refuse if is_full else real)


def test_what_shims_cannot_be_told_is_not_confirmed(tmp_path: Path, full: Callable[[bool], None]) -> None:
    folder = JobletFolder(tmp_path, "boot-1")
    folder.confirm(100.0, 6.0)
    full(True)
    folder.confirm(102.0, 6.0)
    assert folder.confirmed_until == 106.0
    full(False)
    folder.confirm(107.0, 6.0)
    assert folder.confirmed_until == 113.0
    assert (tmp_path / "confirmed").read_text().split()[1] == "107.000000", "holders must not outlive the gap"
    folder.close()


def test_what_a_full_disk_did_not_take_is_written_later(tmp_path: Path, full: Callable[[bool], None]) -> None:
    folder = JobletFolder(tmp_path, "boot-1")
    full(True)
    folder.remember("s-1")
    folder.bind_to_cluster("etcd-1")
    assert folder.trusts("s-1")
    full(False)
    folder.confirm(100.0, 6.0)
    again = reopened(folder)
    assert again.trusts("s-1")
    assert again.cluster == "etcd-1"
    again.close()


def test_an_attempt_is_counted_where_its_number_has_room_already(tmp_path: Path, full: Callable[[bool], None]) -> None:
    folder = JobletFolder(tmp_path, "boot-1")
    full(True)
    folder.highest_attempt.reach(12)
    full(False)
    again = reopened(folder)
    assert again.highest_attempt.value == 12
    again.close()


def test_only_the_last_sessions_are_kept(tmp_path: Path) -> None:
    folder = JobletFolder(tmp_path, "boot-1")
    for number in range(MOST_SESSIONS + 50):
        folder.remember(f"s-{number}")
    assert len((tmp_path / "sessions").read_text().splitlines()) == MOST_SESSIONS
    again = reopened(folder)
    assert again.trusts(f"s-{MOST_SESSIONS + 49}")
    assert not again.trusts("s-0")
    again.close()


def test_a_confirmation_by_a_joblet_of_an_older_version_counts(tmp_path: Path) -> None:
    first = JobletFolder(tmp_path, "boot-1")
    first.confirm(100.0, 6.0)
    (tmp_path / "confirmed").write_text("120.000000 100.000000 boot-1\n")
    again = reopened(first)
    assert again.confirmed_until == pytest.approx(120.0, abs=0.01)
    again.close()
