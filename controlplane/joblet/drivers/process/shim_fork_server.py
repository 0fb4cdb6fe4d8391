"""The fork server of a joblet's shims: an interpreter that makes each shim by a fork of itself. Part of `shim`."""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]
import _socket
import os
import sys

SIGNALS = {_signal.SIGTERM, _signal.SIGCHLD}
_INT = 4
_FILE_TYPE, _SOCKET = 0o170000, 0o140000


def is_fork_server() -> bool:
    return os.fstat(0).st_mode & _FILE_TYPE == _SOCKET


def serve() -> None:
    """Returns in each shim; the fork server itself exits here when its joblet is gone."""
    link = _socket.socket(_socket.AF_UNIX, _socket.SOCK_SEQPACKET, 0, 0)
    _signal.signal(_signal.SIGCHLD, reap)
    while True:
        _signal.pthread_sigmask(_signal.SIG_UNBLOCK, {_signal.SIGCHLD})
        request, descriptors = receive(link)
        # While SIGCHLD is blocked no shim is reaped, so its pid stays its own until the joblet has a descriptor of it.
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


def receive(link: _socket.socket) -> tuple[bytes, list[int]]:
    """A request with two descriptors, the spec and the stdout of the shim; empty when the joblet is gone."""
    try:
        request, rights, _, _ = link.recvmsg(4096, _socket.CMSG_SPACE(2 * _INT))
    except ConnectionError:
        return b"", []
    packed = rights[0][2] if rights else b""
    return request, [int.from_bytes(packed[at : at + _INT], sys.byteorder) for at in range(0, len(packed), _INT)]


def answer(link: _socket.socket, pid: int) -> None:
    """Sends a descriptor of the new process, or that the fork failed."""
    try:
        if pid < 0:
            link.send(b"none")
            return
        process = os.pidfd_open(pid)
        rights = process.to_bytes(_INT, sys.byteorder)
        link.sendmsg([b"born"], [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, rights)])
        os.close(process)
    except ConnectionError:
        pass  # the joblet is gone, and the fork server exits when it listens next


def begin(spec: int, stdout: int) -> None:
    """A new shim lets go of all that belongs to the fork server."""
    os.setsid()
    _signal.signal(_signal.SIGCHLD, _signal.SIG_DFL)
    os.dup2(spec, 0)
    os.dup2(stdout, 1)
    os.closerange(3, 1 << 20)


def reap(_number: int, _frame: object) -> None:
    """Shims that ended leave no zombies behind."""
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        pass
