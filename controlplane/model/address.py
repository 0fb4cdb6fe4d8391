"""Addresses of servers, HOST:PORT: their form, and the addresses which a server may bind."""

from __future__ import annotations

import ipaddress
import re
from typing import NamedTuple

from controlplane.model.errors import Invalid

_HOST = re.compile(r"[^\s/,]+")
_PORT = re.compile(r"[0-9]{1,5}")
_MAX_PORT = 65535


class Address(NamedTuple):
    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    def at(self, port: int) -> Address:
        return Address(self.host, port)


def parse(text: str, field: str) -> Address:
    """The address; Invalid, naming the field, for any other text."""
    host, _, port = text.rpartition(":")
    if not _HOST.fullmatch(host) or not _PORT.fullmatch(port) or int(port) > _MAX_PORT:
        raise Invalid(field, f"must be HOST:PORT such as 127.0.0.1:7070, not {text!r}")
    return Address(host.removeprefix("[").removesuffix("]"), int(port))


def is_loopback(host: str) -> bool:
    """Whether only this machine can be reached at the host; a name other than localhost may stand for any machine."""
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def is_wildcard(host: str) -> bool:
    """Whether a server at the host serves at all addresses of its machine, so that the host tells nobody where."""
    try:
        return ipaddress.ip_address(host).is_unspecified
    except ValueError:
        return False


def parse_served(text: str, field: str, *, beyond_loopback: bool = False) -> Address:
    """An address for a server; beyond loopback only where that is allowed. Port 0 stands for any free port."""
    address = parse(text, field)
    # One name for one socket: localhost may stand for an IPv4 and an IPv6 address.
    host = "127.0.0.1" if address.host == "localhost" else address.host
    try:
        loopback = ipaddress.ip_address(host).is_loopback
    except ValueError:
        raise Invalid(field, f"{host!r} is not an IP address") from None
    if not loopback and not beyond_loopback:
        raise Invalid(field, f"{host} is not a loopback address: that needs TLS and credentials")
    return Address(host, address.port)
