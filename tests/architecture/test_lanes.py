"""A run that must not skip fails when it does: `--no-skips`, tried on a run of its own."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
_IN_A_TEST = "import pytest\n\n\ndef test_it():\n    pytest.skip('no')\n\n\ndef test_other():\n    pass\n"
_WHOLE_FILE = "import pytest\n\npytest.skip('no', allow_module_level=True)\n"
_NONE = "def test_other():\n    pass\n"


def run(folder: Path, content: str, *options: str) -> int:
    (folder / "conftest.py").write_text((ROOT / "tests" / "conftest.py").read_text())
    (folder / "test_some.py").write_text(content)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--rootdir", str(folder), *options]
    environment = {"PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin"}
    return subprocess.run([*command, str(folder)], cwd=folder, env=environment, capture_output=True).returncode


@pytest.mark.parametrize("content", [_IN_A_TEST, _WHOLE_FILE], ids=["a test", "a file"])
def test_a_skip_fails_a_run_that_must_not_skip(tmp_path: Path, content: str) -> None:
    assert run(tmp_path, content, "--no-skips") in (1, 5)
    assert run(tmp_path, content) in (0, 5)


def test_a_run_without_skips_passes(tmp_path: Path) -> None:
    assert run(tmp_path, _NONE, "--no-skips") == 0
