"""The hosts that users may make a replica talk to."""

from __future__ import annotations

import pytest

from controlplane.model.errors import Invalid, Refused
from controlplane.model.outside_hosts import OutsideHosts, is_loopback


@pytest.mark.parametrize(
    ("allowed", "host", "port", "passes"),
    [
        ("", "hooks.example", 443, True),
        ("", "10.0.0.1", 443, True),
        ("", "169.254.169.254", 80, False),
        ("", "fe80::1%eth0", 443, False),
        ("", "::ffff:169.254.169.254", 443, False),
        ("", "0.0.0.0", 443, False),
        ("hooks.example", "HOOKS.example.", 443, True),
        ("hooks.example", "x.hooks.example", 443, False),
        ("hooks.example:8443", "hooks.example", 443, False),
        ("hooks.example:8443, b.example", "hooks.example", 8443, True),
        ("*.example", "a.b.example", 443, True),
        ("*.example", "example", 443, False),
        ("*.example", "badexample", 443, False),
        ("10.0.0.0/8", "10.9.9.9", 6443, True),
        ("10.0.0.0/8", "11.0.0.1", 6443, False),
        ("10.0.0.0/8", "ten.example", 6443, False),
        ("169.254.1.1", "169.254.1.1", 443, True),
        ("[fd00::1]:6443", "fd00::1", 6443, True),
        ("[fd00::1]:6443", "fd00::1", 443, False),
        ("fd00::/8", "fd00::2", 443, True),
    ],
)
def test_a_host_passes_or_not(allowed: str, host: str, port: int, passes: bool) -> None:
    hosts = OutsideHosts(allowed)
    if passes:
        hosts.check(host, port)
    else:
        with pytest.raises(Refused, match="its host is"):
            hosts.check(host, port)


@pytest.mark.parametrize("allowed", ["a b", "10.0.0", "10.0.0.1/8", "*", "x:0", "x:y", "https://x", "a.example,*.*.b"])
def test_a_list_that_cannot_be_meant_is_refused(allowed: str) -> None:
    with pytest.raises(Invalid, match="allowed_hosts"):
        OutsideHosts(allowed)


@pytest.mark.parametrize(("host", "is_one"), [("localhost", True), ("127.9.9.9", True), ("::1", True), ("here", False)])
def test_loopback(host: str, is_one: bool) -> None:
    assert is_loopback(host) is is_one
