"""What a joblet must still know after it was killed: its folder.

`Folder` keeps DIR/secret (who this joblet is), DIR/lock (held while it lives, so that two joblets never share a
folder), DIR/sessions (the sessions it reported under, and in which boot of the machine) and DIR/confirmed (until when
the last of them is confirmed, for the shims of holders), DIR/attempts (the highest attempt number that was started) and
DIR/cluster (the etcd that it works for, and what DIR/attempts said when it came to it). `Home` is the same without a
folder, for what dies with the process. The folder is written by rename or by one append, so that a kill at any moment
leaves it readable.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable
from pathlib import Path

from controlplane.aio.clock import chance
from controlplane.model.errors import AlreadyExists

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


def read_boot() -> str:
    return _BOOT_ID.read_text(encoding="ascii").strip()


class HighMark:
    """The highest attempt number that was ever started here, in DIR/attempts; without a path while it lives."""

    def __init__(self, path: Path | None = None) -> None:
        self._path = path
        self.value = _number(path) if path is not None else 0

    def reach(self, attempt: int) -> None:
        """Must come before the start."""
        if attempt > self.value:
            self.value = attempt
            if self._path is not None:
                replace(self._path, f"{attempt}\n")


class Home:
    """`until` is the monotonic time up to which the replicas have confirmed that this target's session lives.

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
        path.mkdir(parents=True, exist_ok=True)
        self.path = path
        self.boot = boot
        self._lock = take_lock(path)
        super().__init__(read_secret(path), HighMark(path / "attempts"))
        self._read_cluster()
        self._since = 0.0
        self._read_confirmed()
        self._read_sessions()

    def close(self) -> None:
        os.close(self._lock)

    def remember(self, session: str) -> None:
        if self.trusts(session):
            return
        super().remember(session)
        with open(self.path / "sessions", "a", encoding="ascii") as file:
            file.write(f"{session} {self.boot}\n")

    def confirm(self, sent_at: float, lease_seconds: float) -> None:
        """`since` moves when the confirmations had a gap: what held a unique resource before it must be dead."""
        if sent_at > self.until:
            self._since = sent_at
        super().confirm(sent_at, lease_seconds)
        replace(self.path / "confirmed", f"{self.until:.6f} {self._since:.6f} {self.boot}\n")

    def belong(self, cluster: str) -> None:
        if cluster != self.cluster:
            super().belong(cluster)
            replace(self.path / "cluster", f"{cluster} {self.known_attempt}\n")

    def _read_cluster(self) -> None:
        try:
            cluster, known = (self.path / "cluster").read_text(encoding="ascii").split()
            self.cluster, self.known_attempt = cluster, int(known)
        except (FileNotFoundError, ValueError):
            return

    def _read_confirmed(self) -> None:
        try:
            until, since, boot = (self.path / "confirmed").read_text(encoding="ascii").split()
        except (FileNotFoundError, ValueError):
            return
        if boot == self.boot:
            self.until, self._since = float(until), float(since)

    def _read_sessions(self) -> None:
        """A session of an earlier boot is not trusted: folders made just before a crash may be missing."""
        try:
            lines = (self.path / "sessions").read_text(encoding="ascii").splitlines()
        except FileNotFoundError:
            return
        for line in lines:
            session, _, boot = line.partition(" ")
            if boot == self.boot:
                super().remember(session)


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
    new = file.with_name(file.name + ".new")
    descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    with open(descriptor, "w", encoding="utf-8") as opened:
        opened.write(text)
    os.replace(new, file)
