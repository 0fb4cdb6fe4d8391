"""The folder of one attempt: DIR/runs/<order>.<job>.<index>.<attempt>. A folder that exists proves an earlier start.

spec.json   the attempt and its command, written by the joblet before the shim is spawned. The shim holds a lock on the
            file while it lives: a free lock proves that no shim lives
shim.json   the shim's own evidence that it began; also of the end, where the disk had no room for end.json
abandoned   no shim may begin here any more
stop.json   the joblet's wish to stop, with the reason
end.json    how the attempt ended, written when no process of the command is left
stdout, stderr              the output of the command, written by the shim
files/                      resources that other drivers mount as files
progress, artefacts, work/  written by the command

The command may change all of these: every file is opened by `task_files`, and its content is checked. With `--run-as`
the last two lines are in the `TaskHome` of the attempt instead, and the command cannot reach this folder.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Self, TypeVar

import msgspec

from controlplane.aio.files import try_lock, write_by_rename
from controlplane.joblet import task_files
from controlplane.joblet.attempt_records import AttemptIdentity
from controlplane.joblet.drivers.process.task_area import TaskHome
from controlplane.joblet.drivers.process.task_user import FIRST_GROUP
from controlplane.joblet.reconcile import observed_task
from controlplane.model import texts
from controlplane.model.fulfilment import ObservedTask, TaskRef
from controlplane.model.task import AttemptPhase

MAX_ARTEFACTS = 100
MAX_URL = 2048
_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://\S+")
_TAIL_BYTES = 4096
# No fulfilment, and so no command, is larger than etcd accepts.
_MOST_BYTES = 8 << 20
_PRIVATE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_LOCK = os.O_RDWR | os.O_CREAT | os.O_NONBLOCK | os.O_CLOEXEC
# The reason of an attempt that could not begin for want of disk, descriptors or processes: default policies retry it.
EXHAUSTED = "Evicted"
T = TypeVar("T")
_Word = Annotated[str, msgspec.Meta(max_length=1000)]


class RunAs(msgspec.Struct, frozen=True):
    """The folder of the attempt in its area, the user of the command, and the group that only this attempt has."""

    folder: str
    uid: Annotated[int, msgspec.Meta(ge=1)]
    gid: Annotated[int, msgspec.Meta(ge=FIRST_GROUP)]


class Spec(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    subject: AttemptIdentity
    command: tuple[str, ...]
    time_limit: float | None = None
    run_as: RunAs | None = None


class End(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """`how`: exited, timed_out, stopped, lost, not_started; `code` is the exit code, or the error number of a start."""

    how: _Word
    code: Annotated[int, msgspec.Meta(ge=0, lt=2**16)] = 0
    started: _Word = ""
    finished: _Word = ""
    message: _Word = ""


class ShimEvidence(msgspec.Struct, frozen=True, kw_only=True):
    pid: Annotated[int, msgspec.Meta(ge=1, lt=2**31)]
    ticks: Annotated[int, msgspec.Meta(ge=0, le=2**62)]
    boot: _Word
    started: _Word
    end: End | None = None


class Stop(msgspec.Struct, frozen=True, kw_only=True):
    reason: str = ""
    at_once: bool = False


class RunDir:
    """`home` is where the command works, when it runs as another user; else the command works in this folder."""

    def __init__(self, path: Path, home: TaskHome | None = None) -> None:
        self.path = path
        self.home = home

    def with_home(self) -> Self:
        """This folder with the home that its spec names."""
        spec = self.spec()
        if spec is not None and (run_as := spec.run_as) is not None:
            self.home = TaskHome(Path(run_as.folder), run_as.uid, run_as.gid)
        return self

    @property
    def task_folder(self) -> Path:
        return self.path if self.home is None else self.home.path

    @property
    def _task_owner(self) -> int | None:
        return None if self.home is None else self.home.uid

    @property
    def progress(self) -> Path:
        return self.task_folder / "progress"

    @property
    def artefacts(self) -> Path:
        return self.task_folder / "artefacts"

    def prepare(self, spec: Spec) -> None:
        """Makes the folder, in which a shim may be spawned then. FileExistsError when the attempt was begun before."""
        self.path.mkdir(mode=0o700, parents=True)
        try:
            if self.home is not None:
                self.home.make()
            else:
                (self.path / "work").mkdir(mode=0o700)
            write_by_rename(self.path / "spec.json", msgspec.json.encode(spec) + b"\n")
        except OSError:
            self.discard()
            raise

    def place_files(self, contents: Iterable[str]) -> None:
        """After `prepare`: writes files that only the user of the command may read, in the order of `file`."""
        if self.home is not None:
            self.home.place_files(contents)
            return
        for number, text in enumerate(contents):
            path = self.file(number)
            path.parent.mkdir(mode=0o700, exist_ok=True)
            with open(os.open(path, _PRIVATE, 0o400), "w", encoding="utf-8") as file:
                file.write(text)

    def discard(self) -> None:
        """Undoes `prepare` for an attempt that was not spawned, which may begin once more.

        Takes no descriptor, but for a command of another user: what is left of it is removed before it begins again.
        """
        if self.home is not None:
            self.home.remove()
        for number in itertools.count():
            try:
                os.unlink(self.file(number))
            except OSError:
                break
        for name in ("spec.json", "spec.json.new"):
            with contextlib.suppress(OSError):
                os.unlink(self.path / name)
        for folder in (self.path / "files", self.path / "work", self.path):
            with contextlib.suppress(OSError):
                os.rmdir(folder)

    def file(self, number: int) -> Path:
        return self.task_folder / "files" / str(number)

    def spec(self) -> Spec | None:
        """None also when the file is not the spec of this folder's own attempt."""
        spec = self._read("spec.json", Spec)
        if spec is None or folder_name(spec.subject.order, spec.subject.ref) != self.path.name:
            return None
        return spec

    def shim(self) -> ShimEvidence | None:
        return self._read("shim.json", ShimEvidence)

    def end(self) -> End | None:
        end = self._read("end.json", End)
        if end is None and (evidence := self.shim()) is not None:
            return evidence.end
        return end

    def write_stop(self, stop: Stop) -> None:
        self._write("stop.json", stop)

    def write_end(self, end: End) -> None:
        self._write("end.json", end)

    def abandon(self) -> None:
        """Only while holding the lock: a shim that begins later finds the mark and exits."""
        task_files.put(self.path, "abandoned", b"")

    def try_lock(self) -> int | None:
        """A descriptor that holds the lock, or None while a shim holds it. Older versions locked a file `lock`.

        Raises OSError when the command removed the file to lock.
        """
        if task_files.holds(self.path, "lock"):
            older = self._try_lock("lock")
            if older is None:
                return None
            os.close(older)
        return self._try_lock("spec.json")

    def _try_lock(self, name: str) -> int | None:
        lock = task_files.open_within(self.path, name, _LOCK)
        if try_lock(lock):
            return lock
        os.close(lock)
        return None

    def percent(self) -> int | None:
        words = (
            task_files.read_tail(self.task_folder, "progress", _TAIL_BYTES, owner=self._task_owner)
            .decode(errors="replace")
            .split()
        )
        if not words:
            return None
        try:
            return min(100, max(0, int(float(words[-1]))))
        except (ValueError, OverflowError):
            return None

    def urls(self) -> tuple[str, ...]:
        most = MAX_ARTEFACTS * (MAX_URL + 1)
        content = task_files.read_head(self.task_folder, "artefacts", most, owner=self._task_owner) or b""
        lines = [line.strip() for line in content.decode(errors="replace").splitlines()]
        return tuple(url for url in lines if len(url) <= MAX_URL and _URL.fullmatch(url))[:MAX_ARTEFACTS]

    def observe_end(self, ref: TaskRef, end: End, stop: Stop | None = None) -> ObservedTask:
        """The end as a report has it; `stop` is the wish to stop, where the joblet still remembers it."""
        phase, reason, message = self._verdict(end, stop)
        return msgspec.structs.replace(
            observed_task(ref, phase, reason=reason, message=end.message or message),
            exit_code=end.code if end.how == "exited" else None,
            percent=self.percent(),
            artefacts=self.urls(),
            started=end.started,
            finished=end.finished,
        )

    def _verdict(self, end: End, stop: Stop | None) -> tuple[str, str, str]:
        spec, failed = self.spec(), AttemptPhase.FAILED
        if end.how == "exited":
            return (AttemptPhase.SUCCEEDED, "", "") if end.code == 0 else (failed, "Failed", self._last_words())
        if end.how == "timed_out":
            limit = spec.time_limit if spec is not None else None
            return failed, "TimedOut", f"the time limit of {limit:g} s passed" if limit is not None else ""
        if end.how == "not_started":
            name = spec.command[0] if spec is not None and spec.command else ""
            if task_files.is_exhausted(end.code):
                return failed, EXHAUSTED, exhausted_message(end.code)
            return failed, "StartError", f"{name}: {os.strerror(end.code)}" if name else "the command is empty"
        if end.how == "stopped":
            stop = stop or self._read("stop.json", Stop)
            if stop is not None:
                return AttemptPhase.CANCELLED, stop.reason, ""
            return failed, "Evicted", "it was stopped from outside the control plane"
        return failed, "Lost", "it holds a unique resource, and its session was not confirmed in time"

    def _last_words(self) -> str:
        text = task_files.read_tail(self.path, "stderr", _TAIL_BYTES).decode(errors="replace")
        return texts.cut(text.strip(), texts.MESSAGE_CHARACTERS, keep="end")

    def _read(self, name: str, kind: type[T]) -> T | None:
        """None when the file is missing, torn because its writer was killed, or nonsense."""
        content = task_files.read_head(self.path, name, _MOST_BYTES)
        try:
            return msgspec.json.decode(content, type=kind) if content is not None else None
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return None

    def _write(self, name: str, value: msgspec.Struct) -> None:
        task_files.put(self.path, name, msgspec.json.encode(value) + b"\n")


def folder_name(order: str, task: TaskRef) -> str:
    return f"{order}.{task.job}.{task.index}.{task.attempt}"


def exhausted_message(number: int | None) -> str:
    return f"the target has no room for it: {os.strerror(number or 0)}"
