"""Loopback ports: the fixed ones where they are free, so that addresses are the same every day; else some others."""

from __future__ import annotations

import random
import socket

from controlplane.model.errors import Unavailable

HOST = "127.0.0.1"
ETCD, ETCD_PEER, GRPC, HTTP = 23790, 23800, 7101, 7201
# Below the kernel's range for outgoing connections: nothing takes such a port between this look and its use.
_OTHERS = range(20_000, 32_000)


class Ports:
    """Hands out each port once."""

    def __init__(self) -> None:
        self._taken: set[int] = set()

    def address(self, wanted: int) -> str:
        return f"{HOST}:{self._choose(wanted)}"

    def _choose(self, wanted: int) -> int:
        for port in (wanted, *random.sample(_OTHERS, 200)):
            if port not in self._taken and is_free(port):
                self._taken.add(port)
                return port
        raise Unavailable("no free loopback port found")


def is_free(port: int) -> bool:
    """Whether nobody listens there. Connections of the past that linger do not count."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError:
            return False
        return True
