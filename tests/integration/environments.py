"""Virtual environments of a test's own, filled by pip as the machine has it set up."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

SECONDS = 300.0


def run(
    command: Sequence[str | Path], *, folder: Path | None = None, environment: Mapping[str, str] | None = None
) -> str:
    """The output of a command that must succeed."""
    given = {**os.environ, **environment} if environment else None
    words = [str(word) for word in command]
    done = subprocess.run(words, cwd=folder, env=given, capture_output=True, text=True, timeout=SECONDS)
    assert done.returncode == 0, f"{words} ended with {done.returncode}: {done.stdout}\n{done.stderr}"
    return done.stdout


def uv(*arguments: str | Path) -> str:
    """uv of this environment, with the package index that pip is set up with."""
    index = os.environ.get("PIP_INDEX_URL") or _configured_index()
    environment = {"UV_DEFAULT_INDEX": index} if index else {}
    program = Path(sys.executable).with_name("uv")
    return run([program, "--quiet", "--system-certs", *arguments], environment={**environment, "VIRTUAL_ENV": ""})


def _configured_index() -> str:
    command = [sys.executable, "-m", "pip", "config", "get", "global.index-url"]
    return subprocess.run(command, capture_output=True, text=True, timeout=SECONDS).stdout.strip()


def make(folder: Path) -> Path:
    """An empty environment, also without pip; its python is returned."""
    run([sys.executable, "-m", "venv", "--without-pip", folder])
    return folder / "bin" / "python"


def pip(*arguments: str | Path, python: Path | None = None) -> None:
    """pip of this environment, for another environment when its `python` is given."""
    own: list[str | Path] = ["--python", python] if python is not None else []
    run([sys.executable, "-m", "pip", *own, *arguments, "--quiet", "--disable-pip-version-check"])
