"""The facts that a joblet must still know after it was killed, kept in its folder.

`JobletFolder` keeps these files; `JobletState` holds the same facts without a folder, for work that dies with the
process.

secret              identifies this joblet to the replicas
lock                held while the joblet lives, so that two joblets never share a folder
sessions            the last sessions that the joblet reported under, and the boot of the machine of each
confirmed.boottime  until when the last session is confirmed, for the shims of holders
confirmed           the same on CLOCK_MONOTONIC, for shims of older versions
attempts            the highest attempt number that was started
cluster             the etcd that the joblet works for, and the content of `attempts` when it came to that etcd

Each file is written by rename, so that a kill at any moment leaves the folder readable. A disk that cannot be written
never ends a joblet: a confirmation that the shims cannot read does not count, an attempt whose number cannot be kept is
not started, and every other file is written as soon as the disk takes it.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from pathlib import Path

import structlog

from controlplane.aio.clock import chance, suspended_seconds
from controlplane.aio.files import lock_file, write_by_rename
from controlplane.model.errors import AlreadyExists, Invalid

# Only sessions with attempts that were reported as starting are ever looked up, so the last few would do.
MOST_SESSIONS = 200
_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
_NUMBER_WIDTH = 20
log = structlog.get_logger(__name__)


def read_boot() -> str:
    return _BOOT_ID.read_text(encoding="ascii").strip()


class HighestAttempt:
    """The highest attempt number that was ever started here, kept in a file; without a path only while it lives."""

    def __init__(self, path: Path | None = None) -> None:
        self._path = path
        self.value = _number(path) if path is not None else 0
        if path is not None and not path.exists():
            with contextlib.suppress(OSError):
                write_by_rename(path, _padded(0))

    def reach(self, attempt: int) -> None:
        """Must come before the start; raises OSError when the number cannot be kept."""
        if attempt <= self.value:
            return
        if self._path is not None:
            try:
                write_by_rename(self._path, _padded(attempt))
            except OSError:
                # A full disk has room for the same number of digits in the same place.
                _overwrite(self._path, _padded(attempt))
        self.value = attempt


class JobletState:
    """`confirmed_until` is the time, on the joblet's clock, up to which the replicas have confirmed the session.

    `cluster` is the etcd that the joblet works for, `known_attempt` the highest attempt number from before it came to
    that etcd.
    """

    def __init__(self, secret: str, highest_attempt: HighestAttempt | None = None) -> None:
        self.secret = secret
        self.confirmed_until = 0.0
        self.highest_attempt = highest_attempt or HighestAttempt()
        self.cluster = ""
        self.known_attempt = 0
        self._sessions: set[str] = set()
        self._listeners: list[Callable[[], None]] = []

    def bind_to_cluster(self, cluster: str) -> None:
        """The joblet works for this etcd from now on. Work for another etcd must not be alive any more."""
        self.cluster, self.known_attempt = cluster, self.highest_attempt.value

    def remember(self, session: str) -> None:
        """Must come before the first report of the session."""
        self._sessions.add(session)

    def trusts(self, session: str) -> bool:
        """Whether every attempt that was started under this session would be known here."""
        return session in self._sessions

    def confirm(self, sent_at: float, lease_seconds: float) -> None:
        """A heartbeat that was sent at that time was confirmed. The lease counts from the sending, which is safe."""
        self.confirmed_until = max(self.confirmed_until, sent_at + lease_seconds)
        for listener in self._listeners:
            listener()

    def when_confirmed(self, listener: Callable[[], None]) -> None:
        """`listener` is called after each confirmation from now on."""
        self._listeners.append(listener)


class JobletFolder(JobletState):
    def __init__(self, path: Path, boot: str) -> None:
        make_folder(path)
        self.path = path
        self.boot = boot
        self._lock = lock_folder(path)
        super().__init__(read_secret(path), HighestAttempt(path / "attempts"))
        self._read_cluster()
        self._confirmed_since = 0.0
        self._session_lines: list[str] = []
        self._unsaved: dict[str, str] = {}
        self._unwritable = False
        self._read_confirmed()
        self._read_sessions()

    def close(self) -> None:
        os.close(self._lock)

    def remember(self, session: str) -> None:
        """A session that is not on disk is not trusted after a restart: its starting attempts are then called lost."""
        if self.trusts(session):
            return
        super().remember(session)
        self._session_lines = [*self._session_lines, f"{session} {self.boot}\n"][-MOST_SESSIONS:]
        self._save("sessions", "".join(self._session_lines))

    def confirm(self, sent_at: float, lease_seconds: float) -> None:
        """After a gap between confirmations `since` moves: holders from before the gap must be dead.

        A confirmation that cannot be written for the shims does not count: holders die by the clock of their shims, and
        the joblet starts none.
        """
        since = sent_at if sent_at > self.confirmed_until else self._confirmed_since
        until = max(self.confirmed_until, sent_at + lease_seconds)
        try:
            self._write_confirmed(until, since)
        except OSError as error:
            if not self._unwritable:
                log.warning("a confirmation cannot be written for the shims of holders", error=str(error))
            self._unwritable = True
            return
        self._unwritable = False
        self._confirmed_since = since
        for name, text in list(self._unsaved.items()):
            self._save(name, text)
        super().confirm(sent_at, lease_seconds)

    def bind_to_cluster(self, cluster: str) -> None:
        if cluster != self.cluster:
            super().bind_to_cluster(cluster)
            self._save("cluster", f"{cluster} {self.known_attempt}\n")

    def _write_confirmed(self, until: float, since: float) -> None:
        """On CLOCK_BOOTTIME, with the same `until` on CLOCK_MONOTONIC, by which a shim sees that no older joblet wrote
        `confirmed` since."""
        behind = suspended_seconds()
        newer = f"{until:.6f} {since:.6f} {self.boot} {until - behind:.6f}\n"
        write_by_rename(self.path / "confirmed.boottime", newer.encode())
        older = f"{until - behind:.6f} {since - behind:.6f} {self.boot}\n"
        write_by_rename(self.path / "confirmed", older.encode())

    def _save(self, name: str, text: str) -> None:
        """Now, or with a later confirmation."""
        try:
            write_by_rename(self.path / name, text.encode())
            self._unsaved.pop(name, None)
        except OSError as error:
            if self._unsaved.get(name) != text:
                log.warning("a file cannot be written yet", file=str(self.path / name), error=str(error))
            self._unsaved[name] = text

    def _read_cluster(self) -> None:
        try:
            cluster, attempt = (self.path / "cluster").read_text(encoding="ascii").split()
            self.cluster, self.known_attempt = cluster, int(attempt)
        except (FileNotFoundError, ValueError):
            return

    def _read_confirmed(self) -> None:
        """The newer of the two files: an older joblet wrote only `confirmed`."""
        behind = suspended_seconds()
        for name, ahead in (("confirmed.boottime", 0.0), ("confirmed", behind)):
            try:
                until, since, boot = (self.path / name).read_text(encoding="ascii").split()[:3]
                confirmed = (float(until) + ahead, float(since) + ahead)
            except (FileNotFoundError, ValueError):
                continue
            if boot == self.boot and confirmed[0] > self.confirmed_until + 0.001:
                self.confirmed_until, self._confirmed_since = confirmed

    def _read_sessions(self) -> None:
        """A session of an earlier boot is not trusted: folders made just before a crash may be missing."""
        try:
            lines = (self.path / "sessions").read_text(encoding="ascii", errors="replace").splitlines(keepends=True)
        except FileNotFoundError:
            return
        self._session_lines = [line for line in lines if line.endswith(f" {self.boot}\n")][-MOST_SESSIONS:]
        for line in self._session_lines:
            super().remember(line.partition(" ")[0])


def make_folder(path: Path) -> None:
    """The folder is for the user of this process alone: output and credentials are in it.

    Invalid when the folder belongs to another user, or is open to others and not the folder of a joblet.
    """
    path.mkdir(mode=0o700, parents=True, exist_ok=True)
    status = path.stat()
    if status.st_uid != os.geteuid():
        raise Invalid("data_dir", f"{path} belongs to another user")
    if status.st_mode & 0o077:
        if not (path / "secret").exists() and any(path.iterdir()):
            raise Invalid("data_dir", f"{path} is open to other users, and no folder of a joblet: chmod 700 {path}")
        path.chmod(0o700)


def lock_folder(path: Path) -> int:
    """A descriptor that holds the folder until it is closed, or the process dies."""
    lock = lock_file(path / "lock")
    if lock is None:
        raise AlreadyExists(f"another joblet lives in {path}: one folder is for one joblet", field="data_dir")
    return lock


def read_secret(path: Path) -> str:
    """The secret of the folder, made when there is none."""
    file = path / "secret"
    if not file.exists():
        write_by_rename(file, chance(16).hex().encode())
    return file.read_text(encoding="ascii").strip()


def _number(path: Path) -> int:
    try:
        return int(path.read_text(encoding="ascii"))
    except (FileNotFoundError, ValueError):
        return 0


def _padded(number: int) -> bytes:
    return f"{number}".ljust(_NUMBER_WIDTH).encode() + b"\n"


def _overwrite(file: Path, content: bytes) -> None:
    descriptor = os.open(file, os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        os.pwrite(descriptor, content, 0)
    finally:
        os.close(descriptor)
