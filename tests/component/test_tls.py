"""Replicas that serve TLS: who is refused, certificates and CAs that change under load, and unfinished handshakes."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import aiohttp
import grpc
import pytest
from cryptography import x509

from controlplane.apiserver.edge.http.bounded_site import MOST_CONNECTIONS
from controlplane.client import Client
from controlplane.client.caller import CallTimeouts
from controlplane.client.health import is_serving
from controlplane.model.errors import Unavailable
from controlplane.tls_files import TlsSource
from controlplane.wire import transport
from controlplane.wire.v1 import common_pb2, jobs_pb2_grpc
from tests.certs import TestAuthority
from tests.component.joblet_sessions.stage import PATIENCE_SECONDS, Api, Stage, staged
from tests.etcd import Etcd

ONCE = CallTimeouts(connect_seconds=1.0, attempt_seconds=1.0, total_seconds=1.0)
# The first bytes of a ClientHello of 512 bytes, which is never finished.
HALF_A_HELLO = b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"


@pytest.fixture
async def stage(etcd: Etcd) -> AsyncIterator[Stage]:
    async with staged(etcd) as stage:
        yield stage


@pytest.fixture
def authority(tmp_path: Path) -> TestAuthority:
    return TestAuthority(tmp_path / "ca")


@pytest.fixture
def source(authority: TestAuthority) -> TlsSource:
    return TlsSource(authority.files())


@pytest.fixture
async def api(stage: Stage, source: TlsSource) -> Api:
    return await stage.an_api(tls=source)


def context_of(authority: TestAuthority) -> ssl.SSLContext:
    return ssl.create_default_context(cafile=authority.ca)


def ports_of(api: Api) -> tuple[int, int]:
    """Of gRPC and of HTTP."""
    grpc_port, http_port = (int(a.rpartition(":")[2]) for a in (api.server.grpc_address, api.server.http_address))
    return grpc_port, http_port


async def live_over_http(api: Api, tls: ssl.SSLContext) -> bool:
    timeout = aiohttp.ClientTimeout(total=PATIENCE_SECONDS)
    async with aiohttp.ClientSession(timeout=timeout) as session:
        async with session.get(f"{api.server.http_address}/livez", ssl=tls) as answer:
            return answer.status == 200


async def served_certificate(port: int, authority: TestAuthority) -> x509.Certificate:
    tls = context_of(authority)
    tls.set_alpn_protocols(["h2"])
    _, writer = await asyncio.open_connection("127.0.0.1", port, ssl=tls)
    shown = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
    writer.transport.abort()
    return x509.load_der_x509_certificate(shown)


async def test_grpc_and_http_answer_over_tls(api: Api, authority: TestAuthority) -> None:
    assert api.server.http_address.startswith("https://")
    assert await live_over_http(api, context_of(authority))
    opener = transport.opener_for(authority.ca)
    assert await is_serving(api.server.grpc_address, PATIENCE_SECONDS, opener) is not None
    async with Client([api.server.grpc_address], ca_file=authority.ca) as client:
        assert (await client.cluster.status()).id == "replica-1"


async def test_a_client_with_another_ca_does_not_trust_the_replica(api: Api, tmp_path: Path) -> None:
    other = TestAuthority(tmp_path / "other")
    async with Client([api.server.grpc_address], ca_file=other.ca, timeouts=ONCE) as client:
        with pytest.raises(Unavailable):
            await client.cluster.status()
    with pytest.raises(aiohttp.ClientConnectorCertificateError):
        await live_over_http(api, context_of(other))


async def test_a_plain_client_is_refused(api: Api) -> None:
    async with Client([api.server.grpc_address], timeouts=ONCE) as client:
        with pytest.raises(Unavailable):
            await client.cluster.status()
    address = api.server.http_address.replace("https://", "http://")
    async with aiohttp.ClientSession() as session:
        with pytest.raises((aiohttp.ClientError, ConnectionError)):
            await session.get(f"{address}/livez")


@pytest.mark.filterwarnings("ignore:ssl.TLSVersion.TLSv1_1 is deprecated")
@pytest.mark.parametrize("port", [0, 1], ids=["grpc", "http"])
async def test_tls_before_1_2_is_refused(api: Api, authority: TestAuthority, port: int) -> None:
    old = context_of(authority)
    old.set_ciphers("ALL:@SECLEVEL=0")
    old.minimum_version = old.maximum_version = ssl.TLSVersion.TLSv1_1
    with pytest.raises((ssl.SSLError, ConnectionError)):
        await asyncio.open_connection("127.0.0.1", ports_of(api)[port], ssl=old)
    new = context_of(authority)
    new.set_alpn_protocols(["h2"])
    new.maximum_version = ssl.TLSVersion.TLSv1_2
    _, writer = await asyncio.open_connection("127.0.0.1", ports_of(api)[port], ssl=new)
    assert writer.get_extra_info("ssl_object").version() == "TLSv1.2"
    writer.transport.abort()


class Load:
    """Calls over new connections and over one that stands, and a watch, while files change; counts what failed."""

    def __init__(self, api: Api, authority: TestAuthority) -> None:
        self._api = api
        self._authority = authority
        self._standing = transport.opener_for(authority.ca).open(api.server.grpc_address)
        self._watch: Any = None
        self.rounds = 0
        self.failures: list[str] = []
        self._working: asyncio.Task[None] | None = None

    async def begin(self) -> None:
        self._watch = jobs_pb2_grpc.JobsStub(self._standing).Watch(common_pb2.WatchRequest())
        assert (await self._watch.read()).type == "sync"
        self._working = asyncio.create_task(self._work())

    async def _work(self) -> None:
        while True:
            try:
                opener = transport.opener_for(self._authority.ca)
                options = (("grpc.use_local_subchannel_pool", 1),)
                async with opener.open(self._api.server.grpc_address, options) as fresh:
                    for channel in (fresh, self._standing):
                        request = common_pb2.ListRequest()
                        await jobs_pb2_grpc.JobsStub(channel).List(request, timeout=PATIENCE_SECONDS)
                assert await live_over_http(self._api, context_of(self._authority))
            except (grpc.aio.AioRpcError, aiohttp.ClientError, OSError) as error:
                self.failures.append(str(error))
            self.rounds += 1

    async def some_rounds(self) -> None:
        until = self.rounds + 3
        async with asyncio.timeout(PATIENCE_SECONDS):
            while self.rounds < until:
                await asyncio.sleep(0.01)

    async def end(self) -> None:
        assert self._working is not None
        assert not self._working.done(), self._working
        self._working.cancel()
        assert not self._watch.done(), "the watch was cut off"
        self._watch.cancel()
        await self._standing.close()


async def test_certificate_and_ca_change_under_load_without_a_failed_call(
    api: Api, authority: TestAuthority, source: TlsSource
) -> None:
    load = Load(api, authority)
    await load.begin()
    before = [(await served_certificate(port, authority)).serial_number for port in ports_of(api)]

    def take() -> None:
        assert source.look()
        api.server.take_new_certificate()

    for change in (authority.renew, authority.add_authority, authority.renew, authority.forget_former):
        await load.some_rounds()
        change()
        take()
    await load.some_rounds()
    after = [await served_certificate(port, authority) for port in ports_of(api)]
    await load.end()
    assert load.failures == []
    assert not {one.serial_number for one in after} & set(before)
    signer = x509.load_pem_x509_certificate(source.material.ca)
    assert {one.issuer for one in after} == {signer.subject}


async def half_open(port: int, count: int) -> list[asyncio.StreamWriter]:
    writers = []
    for _ in range(count):
        _, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(HALF_A_HELLO)
        writers.append(writer)
    return writers


async def assert_others_are_served(api: Api, authority: TestAuthority, counts: tuple[int, int]) -> None:
    """While there are as many unfinished handshakes with gRPC and with HTTP."""
    async with Client([api.server.grpc_address], ca_file=authority.ca) as before:
        await before.cluster.status()
        held = []
        for port, count in zip(ports_of(api), counts, strict=True):
            held += await half_open(port, count)
        async with asyncio.timeout(PATIENCE_SECONDS):
            async with Client([api.server.grpc_address], ca_file=authority.ca) as fresh:
                await fresh.cluster.status()
            await before.cluster.status()
            assert await live_over_http(api, context_of(authority))
        for writer in held:
            writer.transport.abort()


async def test_unfinished_handshakes_do_not_stop_others(api: Api, authority: TestAuthority) -> None:
    await assert_others_are_served(api, authority, (300, MOST_CONNECTIONS + 100))


@pytest.mark.long
async def test_five_thousand_unfinished_handshakes_do_not_stop_others(api: Api, authority: TestAuthority) -> None:
    await assert_others_are_served(api, authority, (5000, 500))


async def test_an_unfinished_handshake_is_closed(api: Api) -> None:
    async def is_closed(port: int) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(HALF_A_HELLO)
        with suppress(ConnectionError):
            while await reader.read(1000):
                pass
        writer.close()

    async with asyncio.timeout(5 + PATIENCE_SECONDS):
        await asyncio.gather(*map(is_closed, ports_of(api)))
