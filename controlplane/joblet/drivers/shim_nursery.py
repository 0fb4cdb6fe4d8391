"""The nursery of a joblet's shims: an interpreter that makes each of them by a fork of itself. Part of `shim`."""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]
import _socket
import os
import sys

SIGNALS = {_signal.SIGTERM, _signal.SIGCHLD}
_INT = 4


def serve() -> None:
    """Returns in each shim; the nursery itself ends here when its joblet is gone."""
    link = _socket.socket(_socket.AF_UNIX, _socket.SOCK_SEQPACKET, 0, 0)
    _signal.signal(_signal.SIGCHLD, bury)
    while True:
        _signal.pthread_sigmask(_signal.SIG_UNBLOCK, {_signal.SIGCHLD})
        request, descriptors = hear(link)
        # Until the joblet has a descriptor of the new process, its number is not given to another.
        _signal.pthread_sigmask(_signal.SIG_BLOCK, SIGNALS)
        if not request:
            os._exit(0)
        try:
            pid = os.fork()
        except OSError:
            pid = -1
        if pid == 0:
            link.detach()
            begin(*descriptors)
            return
        for descriptor in descriptors:
            os.close(descriptor)
        answer(link, pid)


def hear(link: _socket.socket) -> tuple[bytes, list[int]]:
    """A request: what to run, and where to say that it runs. Nothing when the joblet is gone."""
    try:
        request, rights, _, _ = link.recvmsg(4096, _socket.CMSG_SPACE(2 * _INT))
    except ConnectionError:
        return b"", []
    packed = rights[0][2] if rights else b""
    return request, [int.from_bytes(packed[at : at + _INT], sys.byteorder) for at in range(0, len(packed), _INT)]


def answer(link: _socket.socket, pid: int) -> None:
    """The process as a descriptor; none when it could not be made."""
    try:
        if pid < 0:
            link.send(b"none")
            return
        process = os.pidfd_open(pid)
        rights = process.to_bytes(_INT, sys.byteorder)
        link.sendmsg([b"born"], [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, rights)])
        os.close(process)
    except ConnectionError:
        pass  # the joblet is gone: so is the nursery, when it listens next


def begin(told: int, stdout: int) -> None:
    """A new shim lets go of all that is the nursery's."""
    os.setsid()
    _signal.signal(_signal.SIGCHLD, _signal.SIG_DFL)
    os.dup2(told, 0)
    os.dup2(stdout, 1)
    os.closerange(3, 1 << 20)


def bury(_number: int, _frame: object) -> None:
    """Shims that are over leave nothing behind in the nursery."""
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        pass


def find_argument(text: bytes) -> int:
    """Where in memory the argument stands; a fork has it at the same place."""
    with open("/proc/self/stat", "rb") as file:
        start = int(file.read().rpartition(b")")[2].split()[45])
    with open("/proc/self/cmdline", "rb") as file:
        return start + file.read().index(b"\0" + text + b"\0") + 1
