"""TLS to etcd: its certificate is checked, and the client shows its own.

The certificates in `tls/` are for these tests alone: an authority (its key was thrown away), one certificate of it
for 127.0.0.1 that server and client share, and another authority. They are valid for a hundred years.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from controlplane.aio.clock import SystemClock
from controlplane.model.errors import Unavailable
from controlplane.store.channel import EtcdOptions
from controlplane.store.kv import Store
from controlplane.store.transaction import Item, put
from tests.etcd import free_ports

FILES = Path(__file__).parent / "tls"
CA, OTHER_CA = str(FILES / "ca.pem"), str(FILES / "other.pem")
CERT, KEY = str(FILES / "etcd.pem"), str(FILES / "etcd.key")


@pytest.fixture
def endpoint(tmp_path: Path) -> Iterator[str]:
    """Of an etcd that wants certificates; it may not answer yet."""
    client, peer = free_ports(2)
    url, peer_url = f"https://127.0.0.1:{client}", f"http://127.0.0.1:{peer}"
    command = [
        "etcd",
        f"--data-dir={tmp_path / 'data'}",
        f"--listen-client-urls={url}",
        f"--advertise-client-urls={url}",
        f"--listen-peer-urls={peer_url}",
        f"--initial-advertise-peer-urls={peer_url}",
        f"--initial-cluster=default={peer_url}",
        "--client-cert-auth",
        f"--trusted-ca-file={CA}",
        f"--cert-file={CERT}",
        f"--key-file={KEY}",
        "--log-level=error",
    ]
    etcd = subprocess.Popen(command, stderr=subprocess.DEVNULL)
    try:
        yield url
    finally:
        etcd.kill()
        etcd.wait(10)


async def speak(options: EtcdOptions) -> bool:
    """A write; what certainly was not sent is repeated by the store itself until etcd listens."""
    store = Store(options, SystemClock())
    try:
        return (await store.commit(Item(then=(put("/controlplane/a", b"1"),)))).succeeded
    finally:
        await store.close()


async def test_only_with_the_right_authority_does_a_client_trust_etcd(endpoint: str) -> None:
    assert await speak(EtcdOptions((endpoint,), CA, CERT, KEY, timeout_seconds=30))
    with pytest.raises(Unavailable):
        await speak(EtcdOptions((endpoint,), OTHER_CA, CERT, KEY, timeout_seconds=1))


async def test_a_missing_certificate_file_is_noticed_when_the_store_is_opened(endpoint: str) -> None:
    with pytest.raises(FileNotFoundError):
        Store(EtcdOptions((endpoint,), str(FILES / "nothing.pem")), SystemClock())
