"""The attempt of one shim: what it was told, the files it writes, how long a holder may run. Part of `shim`."""

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
# Room for the end, and for all that is in front of it.
EVIDENCE_BYTES = 1024


class Run:
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
        self.started = ""
        self.group = 0
        self.file = -1
        self.evidence = ""
        self.torn = False

    def path(self, name: str) -> str:
        return self.folder + "/" + name

    def write(self, name: str, text: str) -> int:
        """By rename; the descriptor of the file. A command may have put anything in the way: that raises OSError."""
        new, content = self.path(name + ".new"), ("{" + text + "}").ljust(EVIDENCE_BYTES - 1).encode() + b"\n"
        if os.path.lexists(new):
            os.unlink(new)
        file = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o644)
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
        """Again and again until it is on disk: until then the attempt counts as running."""
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
        """Raises OSError when not all of it is in the records. What is there of it is then ended before the next."""
        records = os.open(self.data + "/records.jsonl", os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o644)
        whole = b"\n" + line if self.torn else line
        try:
            self.torn = os.write(records, whole) < len(whole)
        finally:
            os.close(records)
        if self.torn:
            raise OSError(errno.ENOSPC, "")


def encode(**fields: str | float) -> str:
    """The inside of a JSON object. Texts are words and times: nothing in them needs escaping."""
    return ",".join(
        f'"{name}":"{value}"' if isinstance(value, str) else f'"{name}":{value}' for name, value in fields.items()
    )


def boottime() -> float:
    """Counts also while the machine is suspended: so does the lease that a holder's promise hangs on."""
    try:
        return time.clock_gettime(time.CLOCK_BOOTTIME)
    except (AttributeError, OSError):
        return time.monotonic()


def stamp() -> str:
    now = time.time()
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(now)) + f".{int(now * 1000) % 1000:03d}Z"


def start_ticks() -> int:
    """When this process started, in the kernel's own count: with it a process identifier means one process only."""
    with open("/proc/self/stat", "rb") as file:
        return int(file.read().rpartition(b")")[2].split()[19])


def read(path: str) -> bytes:
    """What a small file holds; a command that put a FIFO or a link there keeps nobody waiting."""
    file = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        return os.read(file, 4096)
    finally:
        os.close(file)


def insist(act: Callable[[], None], seconds: float) -> int:
    """Tries again for so long; the error number when it never worked."""
    give_up = time.monotonic() + seconds
    while True:
        try:
            act()
            return 0
        except OSError as trouble:
            if time.monotonic() >= give_up:
                return trouble.errno or errno.ENOSPC
        time.sleep(AGAIN_SECONDS)


def overdue(run: Run) -> bool:
    """Whether a holder may not run any more, since nobody confirms its joblet's session."""
    return run.holder and boottime() >= run.until and unconfirmed(run)


def unconfirmed(run: Run) -> bool:
    """Reads how long the joblet's session is confirmed. A gap in the confirmations ends a holder, however short.

    A joblet of an older version writes `confirmed` only, on CLOCK_MONOTONIC. It counts where it is newer than what the
    last joblet of this version wrote there.
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


def confirmation(run: Run, name: str) -> tuple[float, float, float]:
    """(until, since when without a gap, until on CLOCK_MONOTONIC); zeros when this boot has none."""
    try:
        until, since, boot, *more = read(run.data + name).split()
        return (float(until), float(since), float((more or (until,))[0])) if boot == run.boot.encode() else (0, 0, 0)
    except (OSError, ValueError):
        return (0, 0, 0)
