"""Addresses as users write them."""

from __future__ import annotations

import pytest

from controlplane.model import address
from controlplane.model.errors import Invalid


@pytest.mark.parametrize(
    ("text", "host", "port", "shown"),
    [
        ("127.0.0.1:7070", "127.0.0.1", 7070, "127.0.0.1:7070"),
        ("localhost:0", "localhost", 0, "localhost:0"),
        ("[::1]:65535", "::1", 65535, "[::1]:65535"),
        ("replica-1.example:7070", "replica-1.example", 7070, "replica-1.example:7070"),
    ],
)
def test_an_address_is_read_and_shown(text: str, host: str, port: int, shown: str) -> None:
    read = address.parse(text, "grpc")
    assert (read.host, read.port, str(read)) == (host, port, shown)


@pytest.mark.parametrize(
    "text", ["", ":7070", "127.0.0.1", "127.0.0.1:", "127.0.0.1:x", "127.0.0.1:65536", "127.0.0.1:-1", "a b:1", "a/b:1",
             "http://127.0.0.1:7070", "a,b:1", "127.0.0.1:٣"]
)  # fmt: skip
def test_what_is_no_address_is_refused_by_its_field(text: str) -> None:
    with pytest.raises(Invalid) as refused:
        address.parse(text, "endpoints")
    assert refused.value.field == "endpoints"


def test_a_server_binds_loopback_addresses_only() -> None:
    assert address.parse_served("localhost:7070", "--grpc") == ("127.0.0.1", 7070)
    assert address.parse_served("[::1]:0", "--grpc") == ("::1", 0)
    for text in ("0.0.0.0:7070", "192.0.2.1:7070", "[::]:7070", "replica-1:7070"):
        with pytest.raises(Invalid):
            address.parse_served(text, "--grpc")
