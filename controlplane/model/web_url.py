"""URLs of servers that a process asks over HTTP: https, or http for a server on the same machine."""

from __future__ import annotations

import ipaddress
from urllib.parse import SplitResult, urlsplit

from controlplane.model import texts
from controlplane.model.errors import Invalid

MOST_CHARACTERS = 2000
_LOCAL_NAMES = ("localhost", "localhost.")


def check(url: str, field: str, *, loopback: bool = True) -> None:
    """Invalid unless the URL is https, or http on loopback. Without `loopback` no server on this machine is allowed."""
    parts = _parts(url, field)
    local = is_loopback(url)
    if parts.scheme not in ("https", "http") or not parts.hostname:
        raise Invalid(field, "must be an https:// URL with a host")
    if parts.scheme == "http" and not local:
        raise Invalid(field, "must be https:// (http:// is for servers on loopback only)")
    if local and not loopback:
        raise Invalid(field, "must not name a server on loopback")
    if parts.username is not None or parts.password is not None or parts.fragment:
        raise Invalid(field, "must hold neither a user, nor a password, nor a fragment")


def is_loopback(url: str) -> bool:
    """Whether the host of the URL is this machine by its spelling; names are not resolved."""
    host = _parts(url, "url").hostname or ""
    try:
        return host in _LOCAL_NAMES or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _parts(url: str, field: str) -> SplitResult:
    if len(url) > MOST_CHARACTERS:
        raise Invalid(field, f"must not be longer than {MOST_CHARACTERS} characters, but has {len(url)}")
    if not url.isascii() or texts.steers(url) or any(character.isspace() for character in url):
        raise Invalid(field, "must be a URL of printable ASCII characters")
    try:
        parts = urlsplit(url)
        _ = parts.port
    except ValueError:
        raise Invalid(field, "is no URL") from None
    return parts
