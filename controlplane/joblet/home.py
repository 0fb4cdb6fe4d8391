"""What a joblet must still know after it was killed: its folder.

`Folder` keeps DIR/secret (who this joblet is), DIR/lock (held while it lives, so that two joblets never share a
folder), DIR/sessions (the last sessions it reported under, and in which boot of the machine), DIR/confirmed.boottime
(until when the last of them is confirmed, for the shims of holders; DIR/confirmed says it to shims of older versions,
on CLOCK_MONOTONIC), DIR/attempts (the highest attempt number that was started) and DIR/cluster (the etcd that it works
for, and what DIR/attempts said when it came to it). `Home` is the same without a folder, for what dies with the
process. The folder is written by rename, so that a kill at any moment leaves it readable.

A disk that cannot be written never ends a joblet: a confirmation that the shims cannot read does not count, an attempt
whose number cannot be kept is not started, and all else is written as soon as that works.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Callable
from pathlib import Path

import structlog

from controlplane.aio.clock import chance, suspended_seconds
from controlplane.joblet import task_files
from controlplane.model.errors import AlreadyExists

# Only what was reported as starting under a session is ever looked up, so the last few would do.
MOST_SESSIONS = 200
_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
_NUMBER_WIDTH = 20
log = structlog.get_logger()


def read_boot() -> str:
    return _BOOT_ID.read_text(encoding="ascii").strip()


class HighMark:
    """The highest attempt number that was ever started here, in DIR/attempts; without a path while it lives."""

    def __init__(self, path: Path | None = None) -> None:
        self._path = path
        self.value = _number(path) if path is not None else 0
        if path is not None and not path.exists():
            with contextlib.suppress(OSError):
                replace(path, _padded(0))

    def reach(self, attempt: int) -> None:
        """Must come before the start; raises OSError when the number cannot be kept."""
        if attempt <= self.value:
            return
        if self._path is not None:
            try:
                replace(self._path, _padded(attempt))
            except OSError:
                # A full disk has room for the same number of digits in the same place.
                _overwrite(self._path, _padded(attempt))
        self.value = attempt


class Home:
    """`until` is the time, on the joblet's clock, up to which the replicas have confirmed that its session lives.

    `cluster` is the etcd that it works for, `known_attempt` the highest attempt number from before it came to that.
    """

    def __init__(self, secret: str, mark: HighMark | None = None) -> None:
        self.secret = secret
        self.until = 0.0
        self.mark = mark or HighMark()
        self.cluster = ""
        self.known_attempt = 0
        self._sessions: set[str] = set()
        self._heard: list[Callable[[], None]] = []

    def belong(self, cluster: str) -> None:
        """It works for this etcd from now on. Nothing that it did for another one may be alive any more."""
        self.cluster, self.known_attempt = cluster, self.mark.value

    def remember(self, session: str) -> None:
        """Must come before the first report of the session."""
        self._sessions.add(session)

    def trusts(self, session: str) -> bool:
        """Whether everything that was started under this session would be known here."""
        return session in self._sessions

    def confirm(self, sent_at: float, lease_seconds: float) -> None:
        """A heartbeat sent at that time was confirmed. Counting from the sending makes it safe."""
        self.until = max(self.until, sent_at + lease_seconds)
        for heard in self._heard:
            heard()

    def when_confirmed(self, heard: Callable[[], None]) -> None:
        """From now on it is called after each confirmation."""
        self._heard.append(heard)


class Folder(Home):
    def __init__(self, path: Path, boot: str) -> None:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.path = path
        self.boot = boot
        self._lock = take_lock(path)
        super().__init__(read_secret(path), HighMark(path / "attempts"))
        self._read_cluster()
        self._since = 0.0
        self._lines: list[str] = []
        self._unsaved: dict[str, str] = {}
        self._silenced = False
        self._read_confirmed()
        self._read_sessions()

    def close(self) -> None:
        os.close(self._lock)

    def remember(self, session: str) -> None:
        """One that is not on disk is not trusted after a restart: what was starting under it is then called lost."""
        if self.trusts(session):
            return
        super().remember(session)
        self._lines = [*self._lines, f"{session} {self.boot}\n"][-MOST_SESSIONS:]
        self._save("sessions", "".join(self._lines))

    def confirm(self, sent_at: float, lease_seconds: float) -> None:
        """`since` moves when the confirmations had a gap: what held a unique resource before it must be dead.

        When the shims cannot be told, nothing is confirmed: holders die by their own clock, and none is started.
        """
        since = sent_at if sent_at > self.until else self._since
        until = max(self.until, sent_at + lease_seconds)
        try:
            self._write_confirmed(until, since)
        except OSError as error:
            if not self._silenced:
                log.warning("holders cannot be told that the session is confirmed", error=str(error))
            self._silenced = True
            return
        self._silenced = False
        self._since = since
        for name, text in list(self._unsaved.items()):
            self._save(name, text)
        super().confirm(sent_at, lease_seconds)

    def belong(self, cluster: str) -> None:
        if cluster != self.cluster:
            super().belong(cluster)
            self._save("cluster", f"{cluster} {self.known_attempt}\n")

    def _write_confirmed(self, until: float, since: float) -> None:
        """On CLOCK_BOOTTIME, with the same `until` on CLOCK_MONOTONIC, by which a shim sees that no older joblet wrote
        `confirmed` since."""
        behind = suspended_seconds()
        replace(self.path / "confirmed.boottime", f"{until:.6f} {since:.6f} {self.boot} {until - behind:.6f}\n")
        replace(self.path / "confirmed", f"{until - behind:.6f} {since - behind:.6f} {self.boot}\n")

    def _save(self, name: str, text: str) -> None:
        """Now, or with a later confirmation."""
        try:
            replace(self.path / name, text)
            self._unsaved.pop(name, None)
        except OSError as error:
            if self._unsaved.get(name) != text:
                log.warning("a file cannot be written yet", file=str(self.path / name), error=str(error))
            self._unsaved[name] = text

    def _read_cluster(self) -> None:
        try:
            cluster, known = (self.path / "cluster").read_text(encoding="ascii").split()
            self.cluster, self.known_attempt = cluster, int(known)
        except (FileNotFoundError, ValueError):
            return

    def _read_confirmed(self) -> None:
        """The newer of the two: an older joblet wrote one of them only."""
        behind = suspended_seconds()
        for name, ahead in (("confirmed.boottime", 0.0), ("confirmed", behind)):
            try:
                until, since, boot = (self.path / name).read_text(encoding="ascii").split()[:3]
                confirmed = (float(until) + ahead, float(since) + ahead)
            except (FileNotFoundError, ValueError):
                continue
            if boot == self.boot and confirmed[0] > self.until + 0.001:
                self.until, self._since = confirmed

    def _read_sessions(self) -> None:
        """A session of an earlier boot is not trusted: folders made just before a crash may be missing."""
        try:
            lines = (self.path / "sessions").read_text(encoding="ascii", errors="replace").splitlines(keepends=True)
        except FileNotFoundError:
            return
        self._lines = [line for line in lines if line.endswith(f" {self.boot}\n")][-MOST_SESSIONS:]
        for line in self._lines:
            super().remember(line.partition(" ")[0])


def take_lock(path: Path) -> int:
    """A descriptor that holds the folder until it is closed, or the process dies."""
    lock = os.open(path / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(lock)
        raise AlreadyExists(f"another joblet lives in {path}: one folder is for one joblet", field="data_dir") from None
    return lock


def read_secret(path: Path) -> str:
    """The folder's own secret, made when it is not there."""
    file = path / "secret"
    if not file.exists():
        replace(file, chance(16).hex())
    return file.read_text(encoding="ascii").strip()


def _number(path: Path) -> int:
    try:
        return int(path.read_text(encoding="ascii"))
    except (FileNotFoundError, ValueError):
        return 0


def replace(file: Path, text: str) -> None:
    """Readers see the old text or the new one, never a part."""
    folder = os.open(file.parent, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        task_files.put_at(folder, file.name, text.encode())
    finally:
        os.close(folder)


def _padded(number: int) -> str:
    return f"{number}".ljust(_NUMBER_WIDTH) + "\n"


def _overwrite(file: Path, text: str) -> None:
    opened = os.open(file, os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        os.pwrite(opened, text.encode(), 0)
    finally:
        os.close(opened)
