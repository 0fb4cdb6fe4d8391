"""What a joblet still knows after it was killed."""

from __future__ import annotations

import errno
from collections.abc import Callable
from pathlib import Path

import pytest

from controlplane.joblet import task_files
from controlplane.joblet.home import MOST_SESSIONS, Folder
from controlplane.model.errors import AlreadyExists


def reopened(folder: Folder, boot: str = "boot-1") -> Folder:
    folder.close()
    return Folder(folder.path, boot)


def test_a_folder_keeps_its_secret_and_sessions(tmp_path: Path) -> None:
    first = Folder(tmp_path / "new", "boot-1")
    first.remember("s-1")
    second = reopened(first)
    assert second.secret == first.secret
    assert second.trusts("s-1")
    assert not second.trusts("s-2")
    second.close()


def test_two_joblets_cannot_live_in_one_folder(tmp_path: Path) -> None:
    first = Folder(tmp_path, "boot-1")
    with pytest.raises(AlreadyExists, match="another joblet lives in"):
        Folder(tmp_path, "boot-1")
    reopened(first).close()


def test_after_a_reboot_no_session_is_trusted_and_nothing_is_confirmed(tmp_path: Path) -> None:
    first = Folder(tmp_path, "boot-1")
    first.remember("s-1")
    first.confirm(100.0, 6.0)
    second = reopened(first, "boot-2")
    assert not second.trusts("s-1")
    assert second.until == 0.0
    second.close()


def test_confirmations_count_from_the_sending_and_never_go_back(tmp_path: Path) -> None:
    folder = Folder(tmp_path, "boot-1")
    folder.confirm(100.0, 6.0)
    folder.confirm(99.0, 6.0)
    assert folder.until == 106.0
    assert (tmp_path / "confirmed").read_text() == "106.000000 100.000000 boot-1\n"
    folder.close()


def test_a_gap_in_the_confirmations_is_written_down_also_across_a_restart(tmp_path: Path) -> None:
    first = Folder(tmp_path, "boot-1")
    first.confirm(100.0, 6.0)
    second = reopened(first)
    second.confirm(105.0, 6.0)
    assert (tmp_path / "confirmed").read_text().split()[1] == "100.000000"
    second.confirm(112.0, 6.0)
    assert (tmp_path / "confirmed").read_text().split()[1] == "112.000000"
    second.close()


def test_a_folder_knows_its_etcd_and_the_attempts_from_before_it(tmp_path: Path) -> None:
    first = Folder(tmp_path, "boot-1")
    assert (first.cluster, first.known_attempt) == ("", 0)
    first.belong("old")
    first.mark.reach(2)
    first.mark.reach(1)
    second = reopened(first)
    assert (second.cluster, second.known_attempt, second.mark.value) == ("old", 0, 2)
    second.belong("new")
    second.mark.reach(7)
    second.belong("new")
    third = reopened(second, "boot-2")
    assert (third.cluster, third.known_attempt, third.mark.value) == ("new", 2, 7)
    third.close()


@pytest.fixture
def full(monkeypatch: pytest.MonkeyPatch) -> Callable[[bool], None]:
    real = task_files.put_at

    def put_at(inside: int, name: str, content: bytes) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    return lambda is_full: monkeypatch.setattr(task_files, "put_at", put_at if is_full else real)


def test_what_shims_cannot_be_told_is_not_confirmed(tmp_path: Path, full: Callable[[bool], None]) -> None:
    folder = Folder(tmp_path, "boot-1")
    folder.confirm(100.0, 6.0)
    full(True)
    folder.confirm(102.0, 6.0)
    assert folder.until == 106.0
    full(False)
    folder.confirm(107.0, 6.0)
    assert folder.until == 113.0
    assert (tmp_path / "confirmed").read_text().split()[1] == "107.000000", "holders must not outlive the gap"
    folder.close()


def test_what_a_full_disk_did_not_take_is_written_later(tmp_path: Path, full: Callable[[bool], None]) -> None:
    folder = Folder(tmp_path, "boot-1")
    full(True)
    folder.remember("s-1")
    folder.belong("etcd-1")
    assert folder.trusts("s-1")
    full(False)
    folder.confirm(100.0, 6.0)
    again = reopened(folder)
    assert again.trusts("s-1")
    assert again.cluster == "etcd-1"
    again.close()


def test_an_attempt_is_counted_where_its_number_has_room_already(tmp_path: Path, full: Callable[[bool], None]) -> None:
    folder = Folder(tmp_path, "boot-1")
    full(True)
    folder.mark.reach(12)
    full(False)
    again = reopened(folder)
    assert again.mark.value == 12
    again.close()


def test_only_the_last_sessions_are_kept(tmp_path: Path) -> None:
    folder = Folder(tmp_path, "boot-1")
    for number in range(MOST_SESSIONS + 50):
        folder.remember(f"s-{number}")
    assert len((tmp_path / "sessions").read_text().splitlines()) == MOST_SESSIONS
    again = reopened(folder)
    assert again.trusts(f"s-{MOST_SESSIONS + 49}")
    assert not again.trusts("s-0")
    again.close()


def test_a_confirmation_by_a_joblet_of_an_older_version_counts(tmp_path: Path) -> None:
    first = Folder(tmp_path, "boot-1")
    first.confirm(100.0, 6.0)
    (tmp_path / "confirmed").write_text("120.000000 100.000000 boot-1\n")
    again = reopened(first)
    assert again.until == pytest.approx(120.0, abs=0.01)
    again.close()
