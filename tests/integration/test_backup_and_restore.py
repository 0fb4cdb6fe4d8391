"""`cpctl backup`, `restore`, `status` and `end-restore` on the folder of `up`, as a user types them."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.integration.folder import Folder, eventually


def refused(folder: Folder, *arguments: str) -> str:
    answer = folder.call("cpctl", *arguments)
    assert (answer.returncode, answer.stdout) == (1, "")
    return answer.stderr


@pytest.mark.timeout(400)
def test_a_restored_folder_goes_on_from_the_backup(folder: Folder, tmp_path: Path) -> None:
    copy = str(tmp_path / "copy")
    assert folder.up().returncode == 0
    order = folder.submit("sleep", "600")
    eventually(lambda: folder.task(order)["phase"] == "Running")
    assert folder.cpctl("backup", copy)["bytes"] > 0
    later = folder.submit("true")
    assert "error: AlreadyExists" in refused(folder, "restore", copy), "not under a running control plane"
    assert "error: IllegalTransition" in refused(folder, "end-restore")
    folder.call("controlplane", "down")
    assert "--force" in refused(folder, "restore", copy)
    assert Path(folder.cpctl("restore", copy, "--force")["aside"]).is_dir()
    assert folder.up().returncode == 0
    eventually(lambda: folder.task(order)["phase"] == "Running" and folder.task(order)["attempt"] == 2)
    status = folder.cpctl("status")
    assert (status["restoring"], status["etcd"]["level"]) == (None, "Ok")
    assert "error: NotFound" in refused(folder, "get", "order", later)
    judged = folder.cpctl("verify")["promises"]
    assert [promise for promise in judged if promise["ok"] is False] == []
