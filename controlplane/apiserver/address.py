"""Addresses that a server binds, as a user gives them: HOST:PORT, loopback only until authentication exists."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass

from controlplane.model.errors import Invalid


@dataclass(frozen=True, slots=True)
class Address:
    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    def at(self, port: int) -> Address:
        return Address(self.host, port)


def parse(text: str, flag: str) -> Address:
    """The address, or Invalid naming the flag. Port 0 stands for any free one."""
    host, colon, port = text.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not colon or not host or not (port.isascii() and port.isdigit()) or int(port) > 65535:
        raise Invalid(flag, f"{text!r} is not HOST:PORT such as 127.0.0.1:7070")
    if host == "localhost":
        # One name for one socket: the name may stand for an IPv4 and an IPv6 address.
        host = "127.0.0.1"
    try:
        loopback = ipaddress.ip_address(host).is_loopback
    except ValueError:
        raise Invalid(flag, f"{host!r} is not an IP address") from None
    if not loopback:
        raise Invalid(flag, f"{host} is not a loopback address; nothing else is served until clients authenticate")
    return Address(host, int(port))
