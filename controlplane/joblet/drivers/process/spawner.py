"""Spawns shims: quickly, detached from the joblet, without losing a signal, and inheriting nothing.

Starting an interpreter takes longer than all other steps of starting a command, so it is done once: a *fork server* is
an interpreter that has imported all that a shim needs, and makes each shim by a fork of itself. The fork server ends
when its joblet is gone; the shims stay. DIR/fork_server.json names the process of the newest fork server.
"""

from __future__ import annotations

import contextlib
import errno
import marshal
import os
import py_compile
import resource
import signal
import socket
import sys
from collections import deque
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple

import msgspec

from controlplane.aio import processes
from controlplane.aio.files import write_by_rename
from controlplane.aio.processes import Process
from controlplane.joblet.drivers.process.process_search import memory_file_name

FORK_SERVER = "fork_server.json"
_SHIM = Path(__file__).with_name("shim.py")
_PARTS = tuple(_SHIM.with_name(f"{name}.py") for name in ("shim", "shim_fork_server", "shim_output", "shim_run"))
# Descriptors that are kept for the joblet's connections, and for looking after attempts.
_RESERVE = 64

# Gets a descriptor of the shim's process; None when the fork server died before it confirmed the fork.
Born = Callable[[int | None], None]
# Gets the error of a shim that was certainly not forked.
Refused = Callable[[OSError], None]


class _ForkServer(NamedTuple):
    pid: int
    link: socket.socket


class _Answer(NamedTuple):
    born: Born
    refused: Refused


class _SpawnRequest(NamedTuple):
    run: Path
    content: bytes
    stdout: int
    answer: _Answer


class Spawner:
    def __init__(self, data: Path, environment: Mapping[str, str], watch: Callable[[int, bool], None]) -> None:
        """`watch(descriptor, True)`: `hear` is to be called when the descriptor can be read; False: no more."""
        self._data = data
        self._environment = dict(environment)
        self._watch = watch
        self._server: _ForkServer | None = None
        # Requests that were sent and not answered, and those that were not sent yet.
        self._under_way: deque[_Answer] = deque()
        self._waiting: deque[_SpawnRequest] = deque()
        self._unreaped: list[int] = []
        self._shim = _compiled(data)

    def spawn(self, run: Path, spec: Mapping[str, object], born: Born, refused: Refused = lambda error: None) -> int:
        """A descriptor on which the shim writes a line when the command runs. `born` or `refused` is called later."""
        self.open()
        content = marshal.dumps({**spec, "folder": str(run)})
        running, stdout = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        if stdout >= _most_descriptor():
            os.close(running)
            os.close(stdout)
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
        self._waiting.append(_SpawnRequest(run, content, stdout, _Answer(born, refused)))
        self._send()
        return running

    def open(self) -> None:
        """Starts a fork server when there is none."""
        self._unreaped = [pid for pid in self._unreaped if not _is_over(pid)]
        if self._server is not None:
            return
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        ours.setblocking(False)
        try:
            pid = self._start(theirs.fileno())
        except OSError:
            ours.close()
            raise
        finally:
            theirs.close()
        self._server = _ForkServer(pid, ours)
        self._watch(ours.fileno(), True)
        with contextlib.suppress(OSError):
            # A full disk has no room for it: `down` then takes the fork server for one more shim, and kills it too.
            write_by_rename(self._data / FORK_SERVER, msgspec.json.encode(processes.of(pid)))

    def close(self) -> None:
        """The fork server sees the end of its link, and exits. The outcome of requests under way stays unknown."""
        server, self._server = self._server, None
        if server is None:
            return
        self._watch(server.link.fileno(), False)
        server.link.close()
        self._unreaped.append(server.pid)
        self._under_way.clear()

    def hear(self) -> None:
        """Reads the answers of the fork server: one for each request, in their order."""
        while self._server is not None:
            try:
                answered, descriptors, _, _ = socket.recv_fds(self._server.link, 16, 1)
            except BlockingIOError:
                break
            except ConnectionError:
                answered, descriptors = b"", []
            if not answered:
                self._lose()
                break
            answer = self._under_way.popleft()
            if answered == b"none":
                answer.refused(BlockingIOError(errno.EAGAIN, "no process could be made"))
            else:
                answer.born(descriptors[0] if descriptors else None)
        self._send()

    def _lose(self) -> None:
        lost = list(self._under_way)
        self.close()
        for answer in lost:
            answer.born(None)

    def _send(self) -> None:
        """Sends as many requests as the fork server takes; the others go when it has answered."""
        while self._waiting:
            request = self._waiting[0]
            try:
                self.open()
                assert self._server is not None
                _hand_over(self._server.link, request)
                self._under_way.append(request.answer)
            except BlockingIOError:
                return
            except ConnectionError:
                # The fork server did not take the request, so another one may have it.
                self._lose()
                continue
            except OSError as error:
                request.answer.refused(error)
            self._waiting.popleft()
            os.close(request.stdout)

    def _start(self, link: int) -> int:
        return os.posix_spawn(
            sys.executable,
            # The source is named for people who look at processes; the shim itself does not need it.
            [sys.executable, "-I", "-S", self._shim, str(_SHIM), str(self._data)],
            self._environment,
            file_actions=[
                (os.POSIX_SPAWN_DUP2, link, 0),
                (os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0),
                (os.POSIX_SPAWN_OPEN, 2, str(self._data / "shim.log"), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600),
            ],
            setsid=True,
            # Blocked from the first moment on, so that a stop is never lost while a shim begins.
            setsigmask=[signal.SIGTERM, signal.SIGCHLD],
        )


def fork_server_of(data: Path) -> Process | None:
    """The fork server of the joblet in this folder, while it lives."""
    try:
        server = msgspec.json.decode((data / FORK_SERVER).read_bytes(), type=Process | None)
    except (OSError, msgspec.DecodeError):
        return None
    return server if server is not None and server.is_alive() else None


def _compiled(data: Path) -> str:
    """Compiled once, since the interpreter would compile the shim for every fork server; a full disk leaves that."""
    try:
        for source in _PARTS:
            py_compile.compile(str(source), cfile=str(data / source.with_suffix(".pyc").name), doraise=True)
    except OSError:
        return str(_SHIM)
    return str(data / "shim.pyc")


def _most_descriptor() -> int:
    """Descriptors up to this number are for commands; those above are for the joblet itself."""
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return limit - min(_RESERVE, limit // 2)


def _hand_over(link: socket.socket, request: _SpawnRequest) -> None:
    """A memory file takes a request of any size, unlike the link."""
    content = os.memfd_create(os.fsdecode(memory_file_name(request.run)), os.MFD_CLOEXEC)
    try:
        os.write(content, request.content)
        os.lseek(content, 0, os.SEEK_SET)
        socket.send_fds(link, [b"spawn"], [content, request.stdout])
    finally:
        os.close(content)


def _is_over(pid: int) -> bool:
    try:
        return os.waitpid(pid, os.WNOHANG)[0] == pid
    except ChildProcessError:
        return True
