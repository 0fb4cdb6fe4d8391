"""The folder of `up`: whose it may be."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from controlplane.model.errors import Refused
from controlplane.standalone.layout import Layout


def test_a_folder_that_others_may_write_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    folder.mkdir()
    folder.chmod(0o777)
    with pytest.raises(Refused, match="can be written by other users"):
        Layout(folder).make()
    folder.chmod(0o755)
    Layout(folder).make()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder away")
def test_a_folder_of_another_user_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    folder.mkdir()
    os.chown(folder, 65534, -1)
    with pytest.raises(Refused, match="belongs to another user"):
        Layout(folder).make()
