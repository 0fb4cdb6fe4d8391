"""What ties a hosted joblet to the replica that hosts it: its stdin.

The first line is who it is. When stdin ends, so has the replica, however it ended, and the joblet does the same; one
that hangs is not waited for, since by then another replica hosts the target.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable

import msgspec

from controlplane.joblet.home import Home
from controlplane.model.errors import Invalid
from controlplane.model.hosting import Papers

_GRACE_SECONDS = 3.0
_MOST_BYTES = 4096
_DESCRIPTORS = "/dev/fd/"
# That of a session among 2,000 targets.
_LONGEST_LEASE_SECONDS = 64.0


def read_papers(descriptor: int = 0) -> Papers:
    """The first line; nothing behind it is taken."""
    line = b""
    while not line.endswith(b"\n") and len(line) < _MOST_BYTES:
        byte = os.read(descriptor, 1)
        if not byte:
            break
        line += byte
    try:
        return msgspec.json.decode(line, type=Papers)
    except msgspec.DecodeError:
        raise Invalid("hosted", "is for joblets that a replica starts: it tells who they are on stdin") from None


def forget_kubeconfig(path: str) -> None:
    """Closes the descriptor that the host passed, once its content is read: nobody can read it again through /proc."""
    if path.startswith(_DESCRIPTORS):
        os.close(int(path.removeprefix(_DESCRIPTORS)))


def take(papers: Papers, home: Home) -> None:
    """From now on it is who it is said to be."""
    home.secret = papers.secret
    if papers.cluster:
        home.cluster, home.known_attempt = papers.cluster, papers.known_attempt


def doubt_seconds(request_seconds: float) -> float:
    """How long after a joblet elsewhere was replaced a pod of it may still appear: it asks while its session is
    confirmed, and a request may arrive as late as its time-out and act as long again."""
    return _LONGEST_LEASE_SECONDS + 2 * request_seconds


def end_with_host(stop: Callable[[], object], descriptor: int = 0) -> None:
    """Calls `stop`, from another thread, when stdin ends."""

    def watch() -> None:
        while os.read(descriptor, _MOST_BYTES):
            pass
        stop()
        threading.Event().wait(_GRACE_SECONDS)
        sys.stderr.write("the joblet did not end with its host, it is made to\n")
        os._exit(1)

    threading.Thread(target=watch, name="host", daemon=True).start()
