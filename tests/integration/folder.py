"""The folder of `controlplane up` and what a user types about it; every command is a process."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

SECONDS = 100.0


class Folder:
    """One control plane of the test's own, by its data folder."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def call(self, module: str, *arguments: str) -> subprocess.CompletedProcess[str]:
        """The options come first: behind `--` they would belong to the command."""
        argv = [sys.executable, "-m", f"controlplane.cli.{module}", arguments[0], "--data-dir", str(self.path)]
        return subprocess.run([*argv, *arguments[1:]], capture_output=True, text=True, timeout=SECONDS)

    def up(self) -> subprocess.CompletedProcess[str]:
        return self.call("controlplane", "up", "--detach", "--replicas", "1", "--targets", "1")

    def cpctl(self, *arguments: str) -> Any:
        answer = self.call("cpctl", *arguments, "-o", "json")
        assert answer.returncode == 0, answer.stderr
        return json.loads(answer.stdout)

    def up_json(self) -> Any:
        return json.loads((self.path / "up.json").read_text())

    def submit(self, *command: str) -> str:
        file = self.path / "order.json"
        file.write_text(json.dumps({"kind": "Order", "packet": {"jobs": [{"job": {"command": list(command)}}]}}))
        identity: str = self.cpctl("submit", "-f", str(file))["id"]
        return identity

    def task(self, order: str) -> Any:
        return self.cpctl("get", "order", order)["tasks"][0]

    def alive(self) -> list[str]:
        """Every process that names this folder."""
        found = []
        for entry in Path("/proc").iterdir():
            try:
                arguments = (entry / "cmdline").read_bytes() if entry.name.isdigit() else b""
            except OSError:
                continue
            if str(self.path).encode() in arguments:
                found.append(arguments.replace(b"\0", b" ").decode())
        return found


def eventually(holds: Callable[[], bool]) -> None:
    give_up = time.monotonic() + SECONDS
    while not holds():
        assert time.monotonic() < give_up, "it never came true"
        time.sleep(0.1)
