"""The folder of one attempt: DIR/runs/<order>.<job>.<index>.<attempt>. Making it is the start's "already exists".

spec.json   who and what, written by the joblet before the shim is spawned. The shim holds a lock on it while it lives:
            who finds that free knows that no shim lives
shim.json   the shim's own evidence that it began
abandoned   no shim may begin here any more
stop.json   the joblet's wish to stop, and why
end.json    how it ended, written when nothing of the command is left
files/      resources that are mounted elsewhere as files
stdout, stderr, progress, artefacts, work/   the command's
"""

from __future__ import annotations

import fcntl
import os
import re
from collections.abc import Iterable
from pathlib import Path
from typing import TypeVar

import msgspec

from controlplane.joblet.home import replace
from controlplane.joblet.reconcile import observed_task
from controlplane.joblet.records import Subject
from controlplane.model import texts
from controlplane.model.fulfilment import ObservedTask, TaskRef

MAX_ARTEFACTS = 100
MAX_URL = 2048
_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://\S+")
_TAIL_BYTES = 4096
T = TypeVar("T")


class Spec(msgspec.Struct, frozen=True, kw_only=True):
    subject: Subject
    command: tuple[str, ...]
    time_limit: float | None = None


class ShimEvidence(msgspec.Struct, frozen=True, kw_only=True):
    pid: int
    ticks: int
    boot: str
    started: str


class Stop(msgspec.Struct, frozen=True, kw_only=True):
    reason: str = ""
    at_once: bool = False


class End(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """`how`: exited, timed_out, stopped, lost, not_started; `code` is then the exit code or the error number."""

    how: str
    code: int = 0
    started: str = ""
    finished: str = ""
    message: str = ""


class RunDir:
    def __init__(self, path: Path) -> None:
        self.path = path

    @property
    def progress(self) -> Path:
        return self.path / "progress"

    @property
    def artefacts(self) -> Path:
        return self.path / "artefacts"

    def prepare(self, spec: Spec) -> None:
        """After this a shim may be spawned. Raises FileExistsError when the attempt was begun before."""
        self.path.mkdir(parents=True)
        (self.path / "work").mkdir()
        self._write("spec.json", spec)

    def place_files(self, contents: Iterable[str]) -> None:
        """After `prepare`: what only the command's user may read, in the order of `file`."""
        for number, text in enumerate(contents):
            path = self.file(number)
            path.parent.mkdir(exist_ok=True)
            path.write_text(text, encoding="utf-8")
            path.chmod(0o400)

    def file(self, number: int) -> Path:
        return self.path / "files" / str(number)

    def spec(self) -> Spec | None:
        return self._read("spec.json", Spec)

    def shim(self) -> ShimEvidence | None:
        return self._read("shim.json", ShimEvidence)

    def end(self) -> End | None:
        return self._read("end.json", End)

    def write_stop(self, stop: Stop) -> None:
        self._write("stop.json", stop)

    def write_end(self, end: End) -> None:
        self._write("end.json", end)

    def abandon(self) -> None:
        """Only while holding the lock: a shim that begins later finds the mark and does nothing."""
        (self.path / "abandoned").touch()

    def try_lock(self) -> int | None:
        """A descriptor that holds the lock, or None while a shim holds it. Older versions had a file `lock` for it."""
        older = self.path / "lock"
        file = older if older.exists() else self.path / "spec.json"
        lock = os.open(file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(lock)
            return None
        return lock

    def percent(self) -> int | None:
        lines = _tail(self.progress).split()
        if not lines:
            return None
        try:
            return min(100, max(0, int(float(lines[-1]))))
        except (ValueError, OverflowError):
            return None

    def urls(self) -> tuple[str, ...]:
        try:
            with open(self.artefacts, encoding="utf-8", errors="replace") as file:
                lines = file.read(MAX_ARTEFACTS * (MAX_URL + 1)).splitlines()
        except FileNotFoundError:
            return ()
        found = [line.strip() for line in lines]
        return tuple(url for url in found if len(url) <= MAX_URL and _URL.fullmatch(url))[:MAX_ARTEFACTS]

    def observe_end(self, ref: TaskRef, end: End) -> ObservedTask:
        """The end in the words of a report."""
        phase, reason, message = self._verdict(end)
        return msgspec.structs.replace(
            observed_task(ref, phase, reason=reason, message=end.message or message),
            exit_code=end.code if end.how == "exited" else None,
            percent=self.percent(),
            artefacts=self.urls(),
            started=end.started,
            finished=end.finished,
        )

    def _verdict(self, end: End) -> tuple[str, str, str]:
        spec = self.spec()
        if end.how == "exited":
            message = "" if end.code == 0 else self._last_words()
            return ("Succeeded", "", "") if end.code == 0 else ("Failed", "Failed", message)
        if end.how == "timed_out":
            limit = spec.time_limit if spec is not None else None
            return "Failed", "TimedOut", f"the time limit of {limit:g} s passed" if limit is not None else ""
        if end.how == "not_started":
            name = spec.command[0] if spec is not None and spec.command else ""
            return "Failed", "StartError", f"{name}: {os.strerror(end.code)}" if name else "the command is empty"
        if end.how == "stopped":
            stop = self._read("stop.json", Stop)
            if stop is not None:
                return "Cancelled", stop.reason, ""
            return "Failed", "Evicted", "it was stopped from outside the control plane"
        return "Failed", "Lost", "it holds a unique resource, and its session was not confirmed in time"

    def _last_words(self) -> str:
        return texts.cut(_tail(self.path / "stderr").strip(), texts.MESSAGE_CHARACTERS, keep="end")

    def _read(self, name: str, kind: type[T]) -> T | None:
        """None when it is not there, or only half there because its writer was killed."""
        try:
            return msgspec.json.decode((self.path / name).read_bytes(), type=kind)
        except (FileNotFoundError, msgspec.DecodeError):
            return None

    def _write(self, name: str, value: msgspec.Struct) -> None:
        replace(self.path / name, msgspec.json.encode(value).decode() + "\n")


def _tail(path: Path) -> str:
    try:
        with open(path, "rb") as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - _TAIL_BYTES))
            return file.read(_TAIL_BYTES).decode(errors="replace")
    except FileNotFoundError:
        return ""
