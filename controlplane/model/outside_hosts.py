"""The hosts outside the plane that users may make a replica talk to: those of webhooks and of kubeconfigs.

Without a list every host is allowed but link-local, multicast and unspecified addresses: cloud machines answer there
with their credentials. With a list only the hosts of the list are allowed. Pure: names are not resolved here, but
`check_address` judges the addresses that a name resolves to.
"""

from __future__ import annotations

import ipaddress
import re

import msgspec

from controlplane.model.errors import Invalid, Refused

_NAME = re.compile(r"(\*\.)?[a-z0-9]([a-z0-9._-]{0,251}[a-z0-9])?")
_LOOPBACK_NAMES = frozenset({"localhost", "localhost."})
_Network = ipaddress.IPv4Network | ipaddress.IPv6Network
_Address = ipaddress.IPv4Address | ipaddress.IPv6Address


class _Entry(msgspec.Struct, frozen=True):
    """`port` 0 stands for all ports."""

    name: str = ""
    network: _Network | None = None
    port: int = 0

    def matches(self, host: str, port: int) -> bool:
        if self.port and self.port != port:
            return False
        address = _address(host)
        if self.network is not None:
            return address is not None and address.version == self.network.version and address in self.network
        if self.name.startswith("*."):
            return address is None and host.endswith(self.name[1:])
        return host == self.name


class OutsideHosts:
    def __init__(self, allowed: str = "", field: str = "allowed_hosts") -> None:
        """`allowed`: NAME, *.DOMAIN, ADDRESS or NETWORK, separated by commas, each with or without :PORT."""
        self._entries = tuple(_entry(text.strip().lower(), field) for text in allowed.split(",") if text.strip())

    def check(self, host: str, port: int) -> None:
        """Refused for a host that is not allowed."""
        host = host.lower().rstrip(".")
        if self._entries:
            if not any(entry.matches(host, port) for entry in self._entries):
                raise Refused("its host is not among the allowed hosts of the replicas (--allowed-hosts)")
            return
        self.check_address(host)

    def check_address(self, host: str) -> None:
        """Refused for an address where no list allows it by name or number; names pass."""
        address = _address(host)
        if self._entries or address is None:
            return
        if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped is not None:
            address = address.ipv4_mapped
        if address.is_link_local or address.is_multicast or address.is_unspecified:
            raise Refused("its host is a link-local, multicast or unspecified address, which --allowed-hosts can allow")


def is_loopback(host: str) -> bool:
    address = _address(host)
    return host.lower() in _LOOPBACK_NAMES if address is None else address.is_loopback


def _address(host: str) -> _Address | None:
    try:
        return ipaddress.ip_address(host.strip("[]").partition("%")[0])
    except ValueError:
        return None


def _entry(text: str, field: str) -> _Entry:
    host, port = _split(text)
    try:
        return _Entry(network=ipaddress.ip_network(host.strip("[]")), port=port)
    except ValueError:
        if port < 0 or not _NAME.fullmatch(host) or _has_no_letter(host):
            raise Invalid(
                field, f"{text!r} must be NAME, *.DOMAIN, ADDRESS or NETWORK, with or without :PORT"
            ) from None
    return _Entry(name=host, port=port)


def _has_no_letter(host: str) -> bool:
    """Numbers that are no address: a mistyped address must not become a name."""
    return not any(character.isalpha() for character in host)


def _split(text: str) -> tuple[str, int]:
    """Host and port; 0 without a port, -1 for a port that is none. An address of IPv6 with a port is in brackets."""
    host, colon, port = text.rpartition(":")
    if not colon or (":" in host and not host.endswith("]")):
        return text, 0
    return host, int(port) if port.isdigit() and 0 < int(port) < 65536 else -1
