"""A real etcd of a test's own: free loopback ports, its own data folder, stopped by its pid."""

from __future__ import annotations

import os
import random
import signal
import socket
import subprocess
import time
import urllib.error
import urllib.request
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from controlplane.standalone.ports import is_free, reserve
from tests import encryption

_START_SECONDS = 60.0
_STOP_SECONDS = 60.0
_LOWEST_PORT = 10_000
# More than any test uses at a time, fewer than a process may have open.
_MOST_RESERVED = 200
_reserved: deque[socket.socket] = deque()
_chance = random.SystemRandom()


class Etcd:
    """One member; `cluster` names all of them, before the first start, when there are more."""

    def __init__(self, folder: Path, flags: Sequence[str] = (), *, name: str = "default") -> None:
        self._folder = folder
        self._flags = tuple(flags)
        client, peer = free_ports(2)
        self.name = name
        self.endpoint = f"{encryption.SCHEME}://127.0.0.1:{client}"
        self.peer = f"http://127.0.0.1:{peer}"
        # Where other members reach this one; a test may put a link in between.
        self.advertised_peer = self.peer
        self.cluster = f"{name}={self.peer}"
        self._process: subprocess.Popen[bytes] | None = None
        self._tls = encryption.etcd_context()

    @property
    def data(self) -> Path:
        return self._folder / "data"

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def start(self) -> None:
        """Returns when it answers."""
        command = [
            "etcd",
            f"--name={self.name}",
            f"--data-dir={self._folder / 'data'}",
            f"--listen-client-urls={self.endpoint}",
            f"--advertise-client-urls={self.endpoint}",
            f"--listen-peer-urls={self.peer}",
            f"--initial-advertise-peer-urls={self.advertised_peer}",
            f"--initial-cluster={self.cluster}",
            "--unsafe-no-fsync",
            "--log-level=error",
            *encryption.etcd_flags(),
            *self._flags,
        ]
        with open(self._folder / "etcd.log", "ab") as log:
            self._process = subprocess.Popen(command, stdout=log, stderr=log)
        until = time.monotonic() + _START_SECONDS
        while not self._healthy():
            if self._process.poll() is not None or time.monotonic() > until:
                self.kill()
                raise RuntimeError((self._folder / "etcd.log").read_text()[-2000:])
            time.sleep(0.02)

    def _healthy(self) -> bool:
        try:
            with urllib.request.urlopen(f"{self.endpoint}/health", timeout=1, context=self._tls) as answer:
                return b'"true"' in answer.read()
        except (urllib.error.URLError, OSError):
            return False

    def kill(self) -> None:
        """SIGKILL, also when it is paused; returns when the process is gone."""
        if self._process is not None:
            self._process.kill()
            self._process.wait(_STOP_SECONDS)
            self._process = None

    def restart(self) -> None:
        self.kill()
        self.start()

    def pause(self) -> None:
        """Returns when all of it stands still: a busy machine takes a moment to stop every thread."""
        os.kill(self.pid, signal.SIGSTOP)
        os.waitid(os.P_PID, self.pid, os.WSTOPPED)

    def resume(self) -> None:
        os.kill(self.pid, signal.SIGCONT)

    def etcdctl(self, *arguments: str) -> str:
        """What it prints; its failure is the test's."""
        done = subprocess.run(
            ["etcdctl", f"--endpoints={self.endpoint}", *arguments],
            env={**os.environ, "ETCDCTL_API": "3", **encryption.etcdctl_environment()},
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    def identity(self) -> str:
        """The member's id, as its peers write it."""
        fields = self.etcdctl("endpoint", "status", "--write-out=fields")
        told = next(line for line in fields.splitlines() if line.startswith('"MemberID"'))
        return f"{int(told.partition(' : ')[2]):x}"


def free_ports(count: int) -> list[int]:
    """Ports that are free, all different, and reserved: tests that run beside this one, and `up`, choose others.

    Below those that the system gives to connections that name none: one of these would now and then take the port of a
    part that is being started again.
    """
    given = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    ports = range(_LOWEST_PORT, max(given, 2 * _LOWEST_PORT))
    found: list[int] = []
    while len(found) < count:
        port = _chance.choice(ports)
        reservation = reserve(port)
        if reservation is None:
            continue
        if is_free(port):
            found.append(port)
            _reserved.append(reservation)
        else:
            reservation.close()
    while len(_reserved) > _MOST_RESERVED:
        _reserved.popleft().close()
    return found


@contextmanager
def running_etcd(folder: Path, flags: Sequence[str] = ()) -> Iterator[Etcd]:
    folder.mkdir(parents=True, exist_ok=True)
    etcd = Etcd(folder, flags)
    try:
        etcd.start()
        yield etcd
    finally:
        etcd.kill()
