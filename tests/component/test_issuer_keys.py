"""The keys of an issuer: rotated, and read from providers that are away, slow, huge, broken or hostile."""

from __future__ import annotations

import asyncio
import gzip
import json
from collections.abc import AsyncIterator

import grpc
import pytest
from aiohttp import web

from controlplane.aio.clock import SystemClock
from controlplane.apiserver import issuer_keys
from controlplane.apiserver.issuer_keys import MOST_WAITING, IssuerKeys
from controlplane.model.errors import Invalid, Unavailable
from controlplane.wire.bounded_http import MOST_BYTES, BoundedHttp
from controlplane.wire.v1 import access_pb2
from tests.clock import ManualClock
from tests.component.access_stage import Answer
from tests.component.jwt_stage import JwtPlane, a_jwt_plane
from tests.etcd import Etcd
from tests.issuer import DISCOVERY, KEYS, Issuer, an_issuer, saying, silent

Code = grpc.StatusCode
FLOOD = 300
PACKED = {"Content-Encoding": "gzip"}


@pytest.fixture
async def issuer() -> AsyncIterator[Issuer]:
    async with an_issuer() as started:
        yield started


def keys_of(issuer: Issuer, *, request_seconds: float = 5.0) -> IssuerKeys:
    """Without an interval between readings."""
    http = BoundedHttp(issuer.url, request_seconds=request_seconds)
    return IssuerKeys(issuer.url, http, SystemClock(), least_seconds=0)


async def asked(plane: JwtPlane, token: str) -> Answer:
    return await plane.ask("Access.WhoAmI", access_pb2.WhoAmIRequest(), token)


async def test_a_token_of_a_new_key_is_taken_at_once(emptied: Etcd) -> None:
    async with a_jwt_plane(emptied) as plane:
        old = plane.issuer.sign()
        assert (await asked(plane, old)).code is Code.OK
        plane.issuer.rotate("second")
        assert (await asked(plane, plane.issuer.sign("second"))).code is Code.OK
        # The key of the old token is withdrawn, and the result of its check does not outlive the key.
        assert (await asked(plane, old)).code is Code.UNAUTHENTICATED


async def test_a_flood_of_unknown_keys_makes_no_flood_of_readings(emptied: Etcd) -> None:
    async with a_jwt_plane(emptied, least_seconds=3600) as plane:
        flood = [plane.issuer.sign(head={"kid": f"unknown-{n}"}) for n in range(FLOOD)]
        answers = await asyncio.gather(*(asked(plane, token) for token in flood))
        assert {answer.code for answer in answers} == {Code.UNAUTHENTICATED}
        assert plane.issuer.asked == {KEYS: 1, DISCOVERY: 1}
        assert (await asked(plane, plane.issuer.sign())).code is Code.OK


async def test_callers_share_a_reading_and_readings_are_an_interval_apart(issuer: Issuer) -> None:
    clock = ManualClock()
    keys = IssuerKeys(issuer.url, BoundedHttp(issuer.url), clock)
    for readings in (1, 2, 3):
        for _ in range(2):
            await asyncio.gather(*(keys.look() for _ in range(FLOOD)))
            assert issuer.asked == {KEYS: readings, DISCOVERY: readings}
        clock.pass_seconds(issuer_keys.LEAST_SECONDS)


async def test_known_keys_are_used_while_the_provider_is_away_or_silent(emptied: Etcd) -> None:
    async with a_jwt_plane(emptied) as plane:
        plane.issuer.answers = {DISCOVERY: saying(b"", 503), KEYS: saying(b"", 503)}
        assert (await asked(plane, plane.issuer.sign())).code is Code.OK
        released = asyncio.Event()
        plane.issuer.answers[DISCOVERY] = silent(released)
        reading = plane.issuer.asked[DISCOVERY]
        unknown = asyncio.create_task(asked(plane, plane.issuer.sign(head={"kid": "unknown"})))
        async with asyncio.timeout(10):
            while plane.issuer.asked[DISCOVERY] == reading:
                await asyncio.sleep(0.01)
        # Only the caller with the unknown key waits.
        async with asyncio.timeout(issuer_keys.READING_SECONDS / 2):
            assert (await asked(plane, plane.issuer.sign())).code is Code.OK
            assert (await asked(plane, await plane.token("bob", "viewer"))).code is Code.OK
        assert not unknown.done()
        released.set()
        assert (await unknown).code is Code.UNAUTHENTICATED


async def test_before_the_first_key_set_callers_are_sent_to_another_replica(emptied: Etcd) -> None:
    async with a_jwt_plane(emptied) as plane:
        plane.issuer.answers = {DISCOVERY: saying(b"", 503)}
        plane.keys.keys = None
        assert (await asked(plane, plane.issuer.sign())).code is Code.UNAVAILABLE
        plane.issuer.answers = {}
        assert (await asked(plane, plane.issuer.sign())).code is Code.OK


async def test_callers_beyond_a_number_do_not_wait(issuer: Issuer) -> None:
    released, keys = asyncio.Event(), keys_of(issuer)
    issuer.answers[DISCOVERY] = silent(released)
    waiting = [asyncio.create_task(keys.look()) for _ in range(MOST_WAITING)]
    async with asyncio.timeout(10):
        while not issuer.asked[DISCOVERY]:
            await asyncio.sleep(0.01)
        await keys.look()
    assert not any(task.done() for task in waiting)
    released.set()
    await asyncio.gather(*waiting)
    assert issuer.asked[DISCOVERY] == 1


async def drip(request: web.Request) -> web.StreamResponse:
    """A byte now and then, for ever."""
    answer = web.StreamResponse()
    await answer.prepare(request)
    while True:
        await answer.write(b" ")
        await asyncio.sleep(0.01)


async def endless(request: web.Request) -> web.StreamResponse:
    answer = web.StreamResponse()
    await answer.prepare(request)
    while True:
        await answer.write(b" " * 65536)


def metadata(url: str, keys: str) -> dict[str, object]:
    return {"issuer": url, "jwks_uri": keys}


BROKEN = ("dripping", "endless", "huge", "packed", "redirect", "no JSON", "no keys", "status", "bomb", "nested")


@pytest.mark.parametrize("sort", BROKEN)
async def test_a_broken_key_set_changes_nothing(issuer: Issuer, sort: str) -> None:
    keys = keys_of(issuer, request_seconds=0.5)
    await keys.look()
    good = keys.keys
    assert good is not None
    content = json.dumps(issuer.key_set()).encode()
    bomb = gzip.compress(b" " * (50 << 20))
    issuer.answers[KEYS] = {
        "dripping": drip,
        "endless": endless,
        "huge": saying(content + b" " * MOST_BYTES),
        "packed": saying(gzip.compress(content), headers=PACKED),
        "redirect": saying(b"", 302, headers={"Location": issuer.url + "/elsewhere"}),
        "no JSON": saying(b"<html>maintenance</html>"),
        "no keys": saying({"keys": []}),
        "status": saying(content, 500),
        "bomb": saying(bomb, headers=PACKED),
        "nested": saying(b'{"keys":' + b"[" * 200_000),
    }[sort]
    issuer.answers["/elsewhere"] = saying(content)
    async with asyncio.timeout(issuer_keys.READING_SECONDS):
        await keys.look()
    assert keys.keys is good
    assert issuer.asked["/elsewhere"] == 0
    issuer.answers = {}
    issuer.rotate("second")
    await keys.look()
    assert keys.keys is not good


@pytest.mark.parametrize("sort", ["another issuer", "plain http elsewhere", "a file", "no key set", "no JSON"])
async def test_a_hostile_discovery_document_changes_nothing(issuer: Issuer, sort: str) -> None:
    keys = keys_of(issuer)
    documents: dict[str, dict[str, object]] = {
        "another issuer": metadata("https://evil.example", issuer.url + KEYS),
        "plain http elsewhere": metadata(issuer.url, "http://192.0.2.1/keys"),
        "a file": metadata(issuer.url, "file:///etc/passwd"),
        "no key set": {"issuer": issuer.url},
        "no JSON": {"issuer": 7},
    }
    issuer.answers[DISCOVERY] = saying(documents[sort])
    async with asyncio.timeout(issuer_keys.READING_SECONDS):
        await keys.look()
    assert keys.keys is None
    assert issuer.asked[KEYS] == 0


async def test_a_remote_issuer_cannot_point_at_servers_of_this_machine(issuer: Issuer) -> None:
    http = BoundedHttp("https://issuer.example")
    for url in (issuer.url + KEYS, "https://localhost/keys", "https://[::1]/keys", "http://issuer.example/keys"):
        with pytest.raises(Unavailable, match="an address that is not used"):
            await http.get(url)
    assert not issuer.asked


def test_a_ca_file_that_holds_none_is_refused() -> None:
    for path in ("/nonexistent/ca.pem", __file__):
        with pytest.raises(Invalid, match=r"^ca_file: no CA certificate"):
            BoundedHttp("https://issuer.example", path)
