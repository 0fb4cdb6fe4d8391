"""TLS to etcd: its certificate is checked, the client shows its own, and changed files count for new connections."""

from __future__ import annotations

import asyncio
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from controlplane.aio.clock import SystemClock
from controlplane.model.errors import Invalid, Unavailable
from controlplane.store.channel import EtcdOptions
from controlplane.store.kv import Store
from controlplane.store.lease import BlockingLease
from controlplane.store.transaction import Item, put
from tests.certs import TestAuthority
from tests.etcd import free_ports


@pytest.fixture
def authority(tmp_path: Path) -> TestAuthority:
    return TestAuthority(tmp_path / "ca")


@pytest.fixture
def endpoint(tmp_path: Path, authority: TestAuthority) -> Iterator[str]:
    """Of an etcd that wants certificates; it may not answer yet."""
    client, peer = free_ports(2)
    url, peer_url = f"https://127.0.0.1:{client}", f"http://127.0.0.1:{peer}"
    files = authority.files("etcd")
    command = [
        "etcd",
        f"--data-dir={tmp_path / 'data'}",
        f"--listen-client-urls={url}",
        f"--advertise-client-urls={url}",
        f"--listen-peer-urls={peer_url}",
        f"--initial-advertise-peer-urls={peer_url}",
        f"--initial-cluster=default={peer_url}",
        "--client-cert-auth",
        f"--trusted-ca-file={files.ca}",
        f"--cert-file={files.cert}",
        f"--key-file={files.key}",
        "--log-level=error",
    ]
    etcd = subprocess.Popen(command, stderr=subprocess.DEVNULL)
    try:
        yield url
    finally:
        etcd.kill()
        etcd.wait(10)


def options_of(endpoint: str, authority: TestAuthority, ca: str = "", seconds: float = 30.0) -> EtcdOptions:
    files = authority.files("client")
    return EtcdOptions((endpoint,), ca or files.ca, files.cert, files.key, timeout_seconds=seconds)


ITEM = Item(then=(put("/controlplane/a", b"1"),))


async def speak(options: EtcdOptions) -> bool:
    """A write; what certainly was not sent is repeated by the store itself until etcd listens."""
    store = Store(options, SystemClock())
    try:
        return (await store.commit(Item(then=(put("/controlplane/a", b"1"),)))).succeeded
    finally:
        await store.close()


async def test_only_with_the_right_authority_does_a_client_trust_etcd(
    endpoint: str, authority: TestAuthority, tmp_path: Path
) -> None:
    assert await speak(options_of(endpoint, authority))
    other = TestAuthority(tmp_path / "other")
    with pytest.raises(Unavailable):
        await speak(options_of(endpoint, authority, other.ca, seconds=1))


async def test_etcd_refuses_a_client_without_a_certificate(endpoint: str, authority: TestAuthority) -> None:
    assert await speak(options_of(endpoint, authority))
    with pytest.raises(Unavailable):
        await speak(EtcdOptions((endpoint,), authority.ca, timeout_seconds=1))


async def test_changed_files_count_for_new_connections_of_the_store_and_of_the_lease_thread(
    endpoint: str, authority: TestAuthority, tmp_path: Path
) -> None:
    assert await speak(options_of(endpoint, authority))
    ca = TestAuthority(tmp_path / "other").copy_ca(tmp_path / "trusted.crt")
    options = options_of(endpoint, authority, ca, seconds=1)
    store, leases = Store(options, SystemClock()), BlockingLease(options)
    try:
        with pytest.raises(Unavailable):
            await store.commit(ITEM)
        with pytest.raises(Unavailable):
            await asyncio.to_thread(leases.grant, 10, 0.5)
        authority.copy_ca(tmp_path / "trusted.crt")
        assert options.trust is not None
        assert options.trust.look()
        assert (await store.commit(ITEM)).succeeded
        assert await asyncio.to_thread(leases.grant, 10, 10.0)
    finally:
        leases.close()
        await store.close()


async def test_new_calls_show_a_renewed_certificate_and_the_connection_of_before_stays(
    endpoint: str, authority: TestAuthority
) -> None:
    options = options_of(endpoint, authority)
    store = Store(options, SystemClock())
    try:
        assert (await store.commit(ITEM)).succeeded
        channel = store.channels.current()
        authority.renew()
        assert options.trust is not None
        assert options.trust.look()
        assert (await store.commit(ITEM)).succeeded
        assert store.channels.current() is not channel
        # Whoever holds the channel of before is not cut off.
        await asyncio.wait_for(channel.channel_ready(), 10)
    finally:
        await store.close()


def test_a_missing_certificate_file_is_an_error_that_names_the_option(tmp_path: Path) -> None:
    with pytest.raises(Invalid, match="etcd_ca"):
        EtcdOptions(("https://127.0.0.1:2379",), str(tmp_path / "nothing.pem"))
