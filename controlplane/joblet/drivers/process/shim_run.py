"""The attempt of one shim: its spec, the files that the shim writes, how long a holder may run. Part of `shim`."""

from __future__ import annotations

import errno
import marshal
import os
import time

TYPE_CHECKING = False
if TYPE_CHECKING:  # typing itself is too slow to import here
    from collections.abc import Callable

AGAIN_SECONDS = 0.2
OUTPUT_LIMIT = 64 << 20
# Room for the end, and for all fields in front of it.
EVIDENCE_BYTES = 1024


class ShimRun:
    """One attempt: its folder, the text for the records, the limits."""

    def __init__(self, data: str, spec: bytes) -> None:
        self.data = data
        read = marshal.loads(spec)
        self.folder: str = read["folder"]
        self.command: list[str] = read["command"]
        self.environment: dict[str, str] = read["environment"]
        self.record: str = read["record"]
        self.time_limit: float | None = read["time_limit"]
        self.holder: bool = read["holder"]
        self.nice: int = read["nice"]
        self.boot: str = read["boot"]
        until = read.get("until_boottime")
        self.until: float = read["until"] + boottime() - time.monotonic() if until is None else until
        self.output_limit: int = read.get("output_limit", OUTPUT_LIMIT)
        self.descriptors: int = read.get("descriptors", 0)
        self.processes: int = read.get("processes", 0)
        self.umask: int = read.get("umask", -1)
        # Where the command works, and its user, group and further groups: None for those of the shim.
        self.task_folder: str = read.get("task_folder") or self.folder
        self.run_as: tuple[int, int, tuple[int, ...]] | None = read.get("run_as")
        self.started = ""
        self.group = 0
        self.file = -1
        self.evidence = ""
        self.torn = False

    def path(self, name: str) -> str:
        return self.folder + "/" + name

    def write(self, name: str, text: str) -> int:
        """Writes by rename and returns the descriptor of the file. Raises OSError when the command is in the way."""
        new, content = self.path(name + ".new"), ("{" + text + "}").ljust(EVIDENCE_BYTES - 1).encode() + b"\n"
        if os.path.lexists(new):
            os.unlink(new)
        file = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        try:
            if os.write(file, content) < len(content):
                raise OSError(errno.ENOSPC, "")
            os.rename(new, self.path(name))
        except OSError:
            os.close(file)
            os.unlink(new)
            raise
        return file

    def write_evidence(self) -> None:
        self.evidence = encode(pid=os.getpid(), ticks=start_ticks(), boot=self.boot, started=self.started)
        self.file = self.write("shim.json", self.evidence)

    def write_end(self, text: str) -> None:
        """Tries until the end is on disk: until then the attempt counts as running."""
        whole = ("{" + self.evidence + ',"end":{' + text + "}}").ljust(EVIDENCE_BYTES - 1).encode() + b"\n"
        while True:
            try:
                os.close(self.write("end.json", text))
                return
            except OSError:
                pass
            try:
                if os.pwrite(self.file, whole, 0) == len(whole):
                    return
            except OSError:
                pass
            time.sleep(AGAIN_SECONDS)

    def line(self, event: str, **more: int) -> bytes:
        moment = encode(pid=os.getpid(), monotonic=round(time.monotonic(), 6), boot=self.boot, time=stamp(), **more)
        return ("{" + encode(event=event) + "," + self.record + "," + moment + "}\n").encode()

    def append(self, line: bytes) -> None:
        """Raises OSError when not all of the line is in the records. The next line ends a torn one first."""
        records = os.open(self.data + "/records.jsonl", os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
        whole = b"\n" + line if self.torn else line
        try:
            self.torn = os.write(records, whole) < len(whole)
        finally:
            os.close(records)
        if self.torn:
            raise OSError(errno.ENOSPC, "")


def encode(**fields: str | float) -> str:
    """The fields of a JSON object. Texts are words and times, which need no escaping."""
    return ",".join(
        f'"{name}":"{value}"' if isinstance(value, str) else f'"{name}":{value}' for name, value in fields.items()
    )


def boottime() -> float:
    """Counts also while the machine is suspended, like the lease that the promise to holders depends on."""
    try:
        return time.clock_gettime(time.CLOCK_BOOTTIME)
    except (AttributeError, OSError):
        return time.monotonic()


def stamp() -> str:
    now = time.time()
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(now)) + f".{int(now * 1000) % 1000:03d}Z"


def start_ticks() -> int:
    """When this process started, in the kernel's own count: pid and start time together name one process only."""
    with open("/proc/self/stat", "rb") as file:
        return int(file.read().rpartition(b")")[2].split()[19])


def read(path: str) -> bytes:
    """The content of a small file; a FIFO or a link that a command put there does not block the shim."""
    file = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        return os.read(file, 4096)
    finally:
        os.close(file)


def insist(act: Callable[[], None], seconds: float) -> int:
    """Repeats the act for so long; returns the error number when every try failed, 0 for success."""
    give_up = time.monotonic() + seconds
    while True:
        try:
            act()
            return 0
        except OSError as trouble:
            if time.monotonic() >= give_up:
                return trouble.errno or errno.ENOSPC
        time.sleep(AGAIN_SECONDS)


def overdue(run: ShimRun) -> bool:
    """Whether a holder may not run any more, since the session of its joblet is no longer confirmed."""
    return run.holder and boottime() >= run.until and unconfirmed(run)


def unconfirmed(run: ShimRun) -> bool:
    """Reads how long the joblet's session is confirmed. A gap between confirmations ends a holder, however short.

    A joblet of an older version writes only `confirmed`, on CLOCK_MONOTONIC. That file counts where it is newer than
    the copy that the last joblet of this version wrote there.
    """
    until, since, newest = confirmation(run, "/confirmed.boottime")
    older, gap, _ = confirmation(run, "/confirmed")
    if older > newest:
        ahead = boottime() - time.monotonic()
        until, since = older + ahead, gap + ahead
    if not until or since > run.until:
        return True
    run.until = until
    return boottime() >= run.until


def confirmation(run: ShimRun, name: str) -> tuple[float, float, float]:
    """(until, since when without a gap, until on CLOCK_MONOTONIC); zeros without a confirmation in this boot."""
    try:
        until, since, boot, *more = read(run.data + name).split()
        return (float(until), float(since), float((more or (until,))[0])) if boot == run.boot.encode() else (0, 0, 0)
    except (OSError, ValueError):
        return (0, 0, 0)
