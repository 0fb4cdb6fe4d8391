"""The tie between a hosted joblet and the replica that hosts it: the joblet's stdin.

The first line is the identity of the joblet. When stdin ends, the replica has ended in whichever way, and the joblet
ends too; a joblet that hangs is killed, since another replica hosts the target by then.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable

import msgspec

from controlplane.joblet.joblet_state import JobletState
from controlplane.model.errors import Invalid
from controlplane.model.hosting import HostedIdentity

_GRACE_SECONDS = 3.0
_MOST_BYTES = 4096
_DESCRIPTORS = "/dev/fd/"
# The lease of a session among 2,000 targets.
_LONGEST_LEASE_SECONDS = 64.0


def read_identity(descriptor: int = 0) -> HostedIdentity:
    """The first line of stdin; the bytes behind it are left unread."""
    line = b""
    while not line.endswith(b"\n") and len(line) < _MOST_BYTES:
        byte = os.read(descriptor, 1)
        if not byte:
            break
        line += byte
    try:
        return msgspec.json.decode(line, type=HostedIdentity)
    except msgspec.DecodeError:
        raise Invalid("hosted", "is for joblets that a replica starts: it tells who they are on stdin") from None


def forget_kubeconfig(path: str) -> None:
    """Closes the descriptor that the host passed, so that its content cannot be read again through /proc."""
    if path.startswith(_DESCRIPTORS):
        os.close(int(path.removeprefix(_DESCRIPTORS)))


def adopt_identity(identity: HostedIdentity, state: JobletState) -> None:
    state.secret = identity.secret
    if identity.cluster:
        state.cluster, state.known_attempt = identity.cluster, identity.known_attempt


def late_start_seconds(request_seconds: float) -> float:
    """How long after a joblet elsewhere was replaced a pod of that joblet may still appear: the joblet sends creates
    while its session is confirmed, and a create may arrive as late as its time-out and act as long again."""
    return _LONGEST_LEASE_SECONDS + 2 * request_seconds


def end_with_host(stop: Callable[[], object], descriptor: int = 0) -> None:
    """Calls `stop`, from another thread, when stdin ends."""

    def watch() -> None:
        while os.read(descriptor, _MOST_BYTES):
            pass
        stop()
        threading.Event().wait(_GRACE_SECONDS)
        sys.stderr.write("the joblet did not end with its host in time, it exits now\n")
        os._exit(1)

    threading.Thread(target=watch, name="host", daemon=True).start()
