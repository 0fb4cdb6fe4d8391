"""Files with keys: made for the owner alone, read only when they are."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from controlplane.aio.clock import chance
from controlplane.key_files import is_private, make_cluster_key, read_cluster_key, read_private
from controlplane.model.errors import Invalid


def test_a_new_cluster_key_is_made_once_and_only_its_owner_reads_it(tmp_path: Path) -> None:
    path = tmp_path / "cluster.key"
    make_cluster_key(path, chance)
    key = read_cluster_key(str(path))
    assert len(key) == 32
    assert path.stat().st_mode & 0o777 == 0o600
    make_cluster_key(path, chance)
    assert read_cluster_key(str(path)) == key
    assert [entry.name for entry in tmp_path.iterdir()] == ["cluster.key"]


def test_no_file_is_no_cluster_key() -> None:
    assert read_cluster_key("") == b""


@pytest.mark.parametrize(
    ("size", "mode", "rule"),
    [
        (31, 0o600, "must hold at least 32 bytes, not 31"),
        (0, 0o600, "must hold at least 32 bytes, not 0"),
        (32, 0o640, "must not be open to others"),
        (32, 0o604, "must not be open to others"),
        (65537, 0o600, "too long"),
    ],
)
def test_a_file_that_holds_no_cluster_key_is_refused_without_showing_it(
    tmp_path: Path, size: int, mode: int, rule: str
) -> None:
    path = tmp_path / "keys"
    path.write_bytes(b"Z" * size)
    path.chmod(mode)
    with pytest.raises(Invalid, match=rule) as refused:
        read_cluster_key(str(path))
    assert refused.value.field == "cluster_key_file"
    assert "ZZ" not in str(refused.value)


def test_a_missing_file_and_a_folder_are_refused(tmp_path: Path) -> None:
    for path in (tmp_path / "missing", tmp_path):
        with pytest.raises(Invalid, match="cannot be read"):
            read_cluster_key(str(path))


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
def test_a_file_of_another_user_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "keys"
    path.write_bytes(bytes(32))
    path.chmod(0o600)
    os.chown(path, 12345, 12345)
    with pytest.raises(Invalid, match="must belong to the user"):
        read_private(str(path), "some_file")


@pytest.mark.parametrize(
    ("mode", "owner", "user", "private"),
    [
        (0o400, 1000, 1000, True),
        (0o600, 1000, 1000, True),
        (0o440, 1000, 1000, False),
        (0o404, 1000, 1000, False),
        (0o440, 0, 1000, True),
        (0o640, 0, 1000, True),
        (0o460, 0, 1000, False),
        (0o450, 0, 1000, False),
        (0o444, 0, 1000, False),
        (0o442, 0, 1000, False),
        (0o440, 0, 0, False),
        (0o400, 0, 0, True),
    ],
)
def test_a_group_may_read_a_file_of_root_for_a_user_who_is_not(mode: int, owner: int, user: int, private: bool) -> None:
    assert is_private(mode, owner, user) is private


_AS_ANOTHER_USER = """
import os, sys
from controlplane.key_files import read_private
os.setgroups([])
os.setgid(12345)
os.setuid(12346)
print(len(read_private(sys.argv[1], "f")))
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_a_mounted_secret_is_read_as_systemd_and_kubernetes_hand_it_over() -> None:
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o711)
        path = Path(folder) / "keys"
        path.write_bytes(b"Z" * 32)
        path.chmod(0o440)
        os.chown(path, 0, 12345)
        done = subprocess.run([sys.executable, "-c", _AS_ANOTHER_USER, str(path)], capture_output=True, text=True)
    assert done.stdout == "32\n", done.stderr
