"""Spawns shims: quickly, detached from the joblet, with no signal lost and nothing inherited.

Starting an interpreter takes longer than all else about starting a command, so that is done once: a *nursery* is an
interpreter that has all a shim needs and makes each one by a fork of itself. It goes away by itself when the joblet is
gone; the shims stay.
"""

from __future__ import annotations

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

_SHIM = Path(__file__).with_name("shim.py")
_PARTS = tuple(_SHIM.with_name(f"{name}.py") for name in ("shim", "shim_nursery", "shim_output", "shim_run"))
# Descriptors that are kept for the joblet's connections, and for looking after what runs.
_RESERVE = 64
# Stands in the command line of the nursery for the folder of an attempt, which its shim writes over it.
_ROOM = 160

# Gets a descriptor of the shim's process; None when it is not known whether there ever was one.
Born = Callable[[int | None], None]
# Gets why there certainly is none.
Refused = Callable[[OSError], None]


class _Nursery(NamedTuple):
    pid: int
    link: socket.socket


class _Answer(NamedTuple):
    born: Born
    refused: Refused


class _Request(NamedTuple):
    run: bytes
    told: bytes
    stdout: int
    answer: _Answer


class Spawner:
    def __init__(self, data: Path, environment: Mapping[str, str], watch: Callable[[int, bool], None]) -> None:
        """`watch(descriptor, True)`: `hear` is to be called when something can be read there; False: no more."""
        self._data = str(data)
        self._environment = dict(environment)
        self._watch = watch
        self._nursery: _Nursery | None = None
        # Sent and not answered, and not sent yet.
        self._under_way: deque[_Answer] = deque()
        self._waiting: deque[_Request] = deque()
        self._useless: list[int] = []
        self._shim = _compiled(data)

    def spawn(self, run: Path, told: Mapping[str, object], born: Born, refused: Refused = lambda error: None) -> int:
        """A descriptor on which the shim says a line when the command runs. `born` or `refused` is called later."""
        self.open()
        content = marshal.dumps({**told, "folder": str(run)})
        heard, stdout = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        if stdout >= _most_descriptor():
            os.close(heard)
            os.close(stdout)
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
        self._waiting.append(_Request(os.fsencode(run), content, stdout, _Answer(born, refused)))
        self._send()
        return heard

    def open(self) -> None:
        """Makes a nursery when there is none."""
        self._useless = [pid for pid in self._useless if not _is_over(pid)]
        if self._nursery is not None:
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
        self._nursery = _Nursery(pid, ours)
        self._watch(ours.fileno(), True)

    def close(self) -> None:
        """The nursery hears that nothing comes any more, and goes. What it was still asked for is not known."""
        nursery, self._nursery = self._nursery, None
        if nursery is None:
            return
        self._watch(nursery.link.fileno(), False)
        nursery.link.close()
        self._useless.append(nursery.pid)
        self._under_way.clear()

    def hear(self) -> None:
        """What the nursery says: a shim for each request, in their order."""
        while self._nursery is not None:
            try:
                said, descriptors, _, _ = socket.recv_fds(self._nursery.link, 16, 1)
            except BlockingIOError:
                break
            except ConnectionError:
                said, descriptors = b"", []
            if not said:
                self._lose()
                break
            answer = self._under_way.popleft()
            if said == b"none":
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
        """As much as the nursery takes; the rest goes when it has answered."""
        while self._waiting:
            request = self._waiting[0]
            try:
                self.open()
                assert self._nursery is not None
                _hand_over(self._nursery.link, request)
                self._under_way.append(request.answer)
            except BlockingIOError:
                return
            except ConnectionError:
                # It was not taken, so another nursery may have it.
                self._lose()
                continue
            except OSError as error:
                request.answer.refused(error)
            self._waiting.popleft()
            os.close(request.stdout)

    def _start(self, link: int) -> int:
        room = "-" * (len(os.fsencode(self._data)) + _ROOM)
        log = os.path.join(self._data, "shim.log")
        return os.posix_spawn(
            sys.executable,
            # The source is named for those who look at processes; the shim itself does not need it.
            [sys.executable, "-I", "-S", self._shim, str(_SHIM), room, self._data],
            self._environment,
            file_actions=[
                (os.POSIX_SPAWN_DUP2, link, 0),
                (os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0),
                (os.POSIX_SPAWN_OPEN, 2, log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600),
            ],
            setsid=True,
            # Blocked from its first moment, so that a stop is never lost while a shim begins.
            setsigmask=[signal.SIGTERM, signal.SIGCHLD],
        )


def _compiled(data: Path) -> str:
    """Compiled once: the interpreter would do it again for every nursery. Where there is no room it does."""
    try:
        for source in _PARTS:
            py_compile.compile(str(source), cfile=str(data / source.with_suffix(".pyc").name), doraise=True)
    except OSError:
        return str(_SHIM)
    return str(data / "shim.pyc")


def _most_descriptor() -> int:
    """Up to which descriptors are for commands; those above are for the joblet itself."""
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return limit - min(_RESERVE, limit // 2)


def _hand_over(link: socket.socket, request: _Request) -> None:
    """Unlike the link, memory takes what is told whatever its size."""
    told = os.memfd_create("told", os.MFD_CLOEXEC)
    try:
        os.write(told, request.told)
        os.lseek(told, 0, os.SEEK_SET)
        socket.send_fds(link, [request.run], [told, request.stdout])
    finally:
        os.close(told)


def _is_over(pid: int) -> bool:
    try:
        return os.waitpid(pid, os.WNOHANG)[0] == pid
    except ChildProcessError:
        return True
