"""The data folder of one embedded control plane: its files, and the lock of its supervisor.

A live supervisor holds `lock`. `up.json` is the published list of addresses and processes; `processes.json` adds start
times, so that a reused pid is never mistaken for the recorded process. Both files are written by rename and removed
when the control plane stops. `etcd.version` names the etcd version that last ran on `etcd/`.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
from pathlib import Path
from typing import Any

from controlplane.model.errors import AlreadyExists, Refused
from controlplane.standalone.endpoints import TOKEN_FILE

Version = tuple[int, int, int]

_VERSION = re.compile(r"(\d+)\.(\d+)\.(\d+)")
# Lines of a Go program, or of its log, that give the reason of its end. A stack trace of many lines follows.
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
        self.cluster_key = self.folder / "cluster.key"
        self.token = self.folder / TOKEN_FILE
        self.etcd_env = self.folder / "etcd.env"
        self.tls = self.folder / "tls"

    def make(self) -> None:
        try:
            for folder in (self.folder, self.logs, self.joblets):
                folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            raise Refused(f"{self.folder} cannot be created: {error.strerror}") from None
        status = self.folder.stat()
        if status.st_uid != os.geteuid():
            raise Refused(f"{self.folder} belongs to another user, who could change what runs from it")
        if status.st_mode & 0o022:
            raise Refused(f"{self.folder} can be written by other users: chmod go-w {self.folder}")

    def joblet_token(self, target: str) -> Path:
        return self.joblets / target / TOKEN_FILE

    def audit(self, number: int) -> Path:
        """The audit log of a replica, kept small like every log."""
        return self.log(f"audit-replica-{number}")

    def log(self, name: str) -> Path:
        return self.logs / f"{name}.log"

    def take_lock(self) -> int:
        """A descriptor that holds the folder until closed or until this process dies; AlreadyExists when held."""
        descriptor = os.open(self.folder / "lock", os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            raise AlreadyExists(f"a control plane already runs from {self.folder}") from None
        return descriptor

    def note_etcd(self, version: Version) -> None:
        """Records that an etcd of this version serves the folder."""
        write_text(self.etcd_version, f"{show_version(version)}\n")

    def check_etcd(self, version: Version) -> None:
        """Refused when an etcd of this version cannot take over the folder: etcd would panic, or could not go back."""
        match = _VERSION.fullmatch(self._noted_version())
        if match is None or not self.etcd.exists():
            return
        before = (int(match[1]), int(match[2]), int(match[3]))
        if version[0] == before[0] and version[1] - before[1] in (0, 1):
            return
        rule = "no minor version may be skipped" if version > before else "there is no way back to an older one"
        old, new = show_version(before), show_version(version)
        raise Refused(
            f"{self.etcd} was last run by etcd {old}, and etcd {new} cannot take it over: {rule}. "
            f"With etcd {old}: `controlplane up`, `cpctl backup FILE`, `controlplane down`; "
            f"then with etcd {new}: `cpctl restore FILE --force`, `controlplane up`"
        )

    def _noted_version(self) -> str:
        try:
            return self.etcd_version.read_text().strip()
        except (OSError, UnicodeDecodeError):
            return ""

    def forget_processes(self) -> None:
        self.up_json.unlink(missing_ok=True)
        self.processes_json.unlink(missing_ok=True)


def show_version(version: Version) -> str:
    return ".".join(map(str, version))


def write_json(path: Path, value: Any) -> None:
    write_text(path, json.dumps(value, indent=2) + "\n")


def write_text(path: Path, text: str) -> None:
    """Writes by rename: readers see the old content or the new content, never a part."""
    new = path.with_name(f".{path.name}.new")
    new.write_text(text)
    new.replace(path)


def tail(path: Path, lines: int = 15) -> str:
    """The last lines of a log, after up to five earlier lines that give the reason of the end."""
    try:
        text = path.read_bytes()[-200_000:].decode(errors="replace")
    except OSError:
        return "(no log)"
    every = [line[:_LINE_LENGTH] for line in text.splitlines()]
    reasons = [line for line in every[:-lines] if _REASON.search(line)]
    last = [*dict.fromkeys(reasons[-_REASON_LINES:]), *every[-lines:]]
    return "\n".join(last) or "(the log is empty)"
