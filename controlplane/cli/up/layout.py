"""The folder of one embedded control plane: what lies where, and who holds it.

`lock` is held by the supervisor while it lives. `up.json` is the published list of addresses and processes;
`processes.json` says the same with start times, so that a process is never mistaken for another one of the same pid.
Both are written by rename and are gone when nothing runs.
"""

from __future__ import annotations

import fcntl
import json
import os
from pathlib import Path
from typing import Any

from controlplane.model.errors import AlreadyExists, Refused


class Layout:
    def __init__(self, folder: Path) -> None:
        self.folder = folder.expanduser().resolve()
        self.up_json = self.folder / "up.json"
        self.processes_json = self.folder / "processes.json"
        self.logs = self.folder / "logs"
        self.joblets = self.folder / "joblets"
        self.etcd = self.folder / "etcd"
        self.hosted = self.folder / "hosted"
        self.secret_key = self.folder / "secret.key"

    def make(self) -> None:
        try:
            for folder in (self.folder, self.logs, self.joblets):
                folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            raise Refused(f"{self.folder} cannot be made: {error.strerror}") from None

    def log(self, name: str) -> Path:
        return self.logs / f"{name}.log"

    def take_lock(self) -> int:
        """A descriptor that holds the folder until it is closed or the process dies; AlreadyExists when it is held."""
        descriptor = os.open(self.folder / "lock", os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            raise AlreadyExists(f"a control plane already runs from {self.folder}") from None
        return descriptor

    def forget_processes(self) -> None:
        self.up_json.unlink(missing_ok=True)
        self.processes_json.unlink(missing_ok=True)


def write_json(path: Path, value: Any) -> None:
    """Readers see the old content or the new one, never a part."""
    new = path.with_name(f".{path.name}.new")
    new.write_text(json.dumps(value, indent=2) + "\n")
    new.replace(path)


def tail(path: Path, lines: int = 15) -> str:
    try:
        text = path.read_bytes()[-20_000:].decode(errors="replace")
    except OSError:
        return "(no log)"
    return "\n".join(text.splitlines()[-lines:]) or "(the log is empty)"
