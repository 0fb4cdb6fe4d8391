"""The folder of one embedded control plane: what lies where, and who holds it.

`lock` is held by the supervisor while it lives. `up.json` is the published list of addresses and processes;
`processes.json` says the same with start times, so that a process is never mistaken for another one of the same pid.
Both are written by rename and are gone when nothing runs. `etcd.version` is that of the etcd that last ran on `etcd/`.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
from pathlib import Path
from typing import Any

from controlplane.model.errors import AlreadyExists, Refused

Version = tuple[int, int, int]

_VERSION = re.compile(r"(\d+)\.(\d+)\.(\d+)")
# Lines of a Go program, or of its log, that say why it ended. A stack of many lines follows them.
_REASON = re.compile(r"\b(panic|fatal)\b", re.IGNORECASE)
_REASON_LINES = 5
_LINE_LENGTH = 500


class Layout:
    def __init__(self, folder: Path) -> None:
        self.folder = folder.expanduser().resolve()
        self.up_json = self.folder / "up.json"
        self.processes_json = self.folder / "processes.json"
        self.logs = self.folder / "logs"
        self.joblets = self.folder / "joblets"
        self.etcd = self.folder / "etcd"
        self.etcd_version = self.folder / "etcd.version"
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

    def note_etcd(self, version: Version) -> None:
        """That etcd serves what is in the folder."""
        write_text(self.etcd_version, f"{shown(version)}\n")

    def check_etcd(self, version: Version) -> None:
        """Refused when that etcd cannot run on what another one left: it would end by a panic, or lose its way back."""
        match = _VERSION.fullmatch(self._noted())
        if match is None or not self.etcd.exists():
            return
        before = (int(match[1]), int(match[2]), int(match[3]))
        if version[0] == before[0] and version[1] - before[1] in (0, 1):
            return
        rule = "no minor version may be skipped" if version > before else "there is no way back to an older one"
        raise Refused(
            f"{self.etcd} was last run by etcd {shown(before)}, and etcd {shown(version)} cannot take it over: {rule}. "
            f"With etcd {shown(before)}: `controlplane up`, `cpctl backup FILE`, `controlplane down`; "
            f"then with etcd {shown(version)}: `cpctl restore FILE --force`, `controlplane up`"
        )

    def _noted(self) -> str:
        try:
            return self.etcd_version.read_text().strip()
        except (OSError, UnicodeDecodeError):
            return ""

    def forget_processes(self) -> None:
        self.up_json.unlink(missing_ok=True)
        self.processes_json.unlink(missing_ok=True)


def shown(version: Version) -> str:
    return ".".join(map(str, version))


def write_json(path: Path, value: Any) -> None:
    write_text(path, json.dumps(value, indent=2) + "\n")


def write_text(path: Path, text: str) -> None:
    """Readers see the old content or the new one, never a part."""
    new = path.with_name(f".{path.name}.new")
    new.write_text(text)
    new.replace(path)


def tail(path: Path, lines: int = 15) -> str:
    """The last lines, behind those before them that say why it ended."""
    try:
        text = path.read_bytes()[-200_000:].decode(errors="replace")
    except OSError:
        return "(no log)"
    every = [line[:_LINE_LENGTH] for line in text.splitlines()]
    reasons = [line for line in every[:-lines] if _REASON.search(line)]
    last = [*dict.fromkeys(reasons[-_REASON_LINES:]), *every[-lines:]]
    return "\n".join(last) or "(the log is empty)"
