"""Loopback ports of an embedded control plane: fixed ports where they are free, so that addresses stay the same.

A port is checked long before its server binds it, and is unbound while its server restarts. So every port is reserved
by a name in the kernel (an abstract socket, which lives in the same network namespace as the port): two `up` never
choose the same port, and the ports of a killed `up` are free at once.
"""

from __future__ import annotations

import random
import socket
from types import TracebackType

from controlplane.model.errors import Unavailable

HOST = "127.0.0.1"
ETCD, ETCD_PEER, GRPC, HTTP = 23790, 23800, 7101, 7201
# Below the kernel's range for outgoing connections, so no connection takes such a port between check and use.
_OTHERS = range(20_000, 32_000)


class Ports:
    """Hands out each port once, and keeps its reservation until closed."""

    def __init__(self) -> None:
        self._reserved: list[socket.socket] = []

    def __enter__(self) -> Ports:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for reservation in self._reserved:
            reservation.close()

    def address(self, wanted: int) -> str:
        return f"{HOST}:{self._choose(wanted)}"

    def _choose(self, wanted: int) -> int:
        for port in (wanted, *random.sample(_OTHERS, 200)):
            reservation = reserve(port)
            if reservation is None:
                continue
            if is_free(port):
                self._reserved.append(reservation)
                return port
            reservation.close()
        raise Unavailable("no free loopback port found")


def is_free(port: int) -> bool:
    """Whether no server listens on the port. Closed connections that linger do not count."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError:
            return False
        return True


def reserve(port: int) -> socket.socket | None:
    """The socket that holds the reservation; None when the port is reserved already."""
    reservation = socket.socket(socket.AF_UNIX)
    try:
        reservation.bind(f"\0controlplane/port/{port}")
    except OSError:
        reservation.close()
        return None
    return reservation
