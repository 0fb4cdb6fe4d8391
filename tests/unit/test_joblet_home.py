"""What a joblet still knows after it was killed."""

from __future__ import annotations

from pathlib import Path

import pytest

from controlplane.joblet.home import Folder
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
