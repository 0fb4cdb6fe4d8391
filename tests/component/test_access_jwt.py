"""JWTs as credentials of a plane: forged ones, bindings, ends of tokens and streams, and the binding of names."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import grpc
import pytest

from controlplane.model.access import Binding
from controlplane.store import keys
from controlplane.wire import transport
from controlplane.wire.v1 import access_pb2, common_pb2, jobs_pb2
from tests.component.access_requests import requests_for
from tests.component.access_stage import Plane, Work, ask, methods
from tests.component.jwt_stage import JwtPlane, a_jwt_plane
from tests.component.test_access_streams import END_SECONDS, Watch
from tests.etcd import Etcd
from tests.forged_jwts import forgeries
from tests.issuer import rsa_key

Code = grpc.StatusCode
ADA = Work("ada")
EVERYWHERE = (
    "alg none", "HS256 with the public PEM", "embedded jwk", "unknown crit", "no exp", "expired", "another aud",
    "another iss", "unknown kid", "changed claims", "oversized",
)  # fmt: skip


@pytest.fixture
async def plane(emptied: Etcd) -> AsyncIterator[JwtPlane]:
    async with a_jwt_plane(emptied) as started:
        yield started


@asynccontextmanager
async def watching(plane: Plane, token: str) -> AsyncIterator[Watch]:
    watch = await Watch(plane, token).synced()
    try:
        yield watch
    finally:
        watch.call.cancel()


async def who(plane: Plane, token: str) -> Any:
    answer = await plane.ask("Access.WhoAmI", access_pb2.WhoAmIRequest(), token)
    assert answer.code is Code.OK, answer
    return answer.messages[0]


async def test_no_method_takes_a_forged_token_and_nothing_is_written(plane: JwtPlane) -> None:
    plane.issuer.keys["rsa"] = rsa_key()
    plane.issuer.published.add("rsa")
    await plane.keys.look()
    forged = forgeries(plane.issuer)
    before = await plane.api.store.revision()
    for name in EVERYWHERE:
        metadata = transport.credentials(forged[name][0])
        ways = [(method, requests_for(method, ADA)) for method in methods()]
        answers = await asyncio.gather(*(ask(plane.api.channel, *way, metadata) for way in ways))
        for (method, _), answer in zip(ways, answers, strict=True):
            assert answer.code is Code.UNAUTHENTICATED, (name, method.full_name, answer)
            assert not answer.messages
    for name, (text, rule) in forged.items():
        answer = await plane.ask("Access.WhoAmI", access_pb2.WhoAmIRequest(), text)
        assert (answer.code, rule in answer.details) == (Code.UNAUTHENTICATED, True), (name, answer)
    assert await plane.api.store.revision() == before


async def test_a_bearer_without_a_role_is_told_its_name_and_nothing_else(plane: JwtPlane) -> None:
    token = plane.issuer.sign(groups=["film"])
    subject = await who(plane, token)
    assert (subject.name, list(subject.groups), list(subject.roles)) == ("oidc:ada", ["oidc:film"], [])
    assert subject.via.startswith("jwt:")
    for method in ("Jobs.List", "Targets.List", "Orders.List"):
        answer = await plane.ask(method, common_pb2.ListRequest(), token)
        assert (answer.code, "(no role)" in answer.details) == (Code.PERMISSION_DENIED, True)


async def test_roles_come_from_bindings_of_the_name_and_of_groups(plane: JwtPlane) -> None:
    token = plane.issuer.sign(groups=["film"])
    await plane.bind("of-subject", "submitter", subject="oidc:ada")
    await plane.bind("of-group", "viewer", group="oidc:film", owner="library")
    await plane.bind("of-another", "admin", subject="ada")
    await plane.bind("of-another-group", "admin", group="film")
    subject = await who(plane, token)
    assert [(grant.role, grant.owner) for grant in subject.grants] == [("submitter", ""), ("viewer", "library")]
    made = await plane.ask("Jobs.Create", jobs_pb2.Job(name="render", command=["true"]), token)
    assert (made.code, made.messages[0].item.owner) == (Code.OK, "oidc:ada")


async def test_a_token_never_has_the_role_of_a_joblet_or_a_replica(plane: JwtPlane) -> None:
    """Not even by a binding that somebody wrote into etcd by hand."""
    for role in ("joblet", "replica"):
        binding = Binding(name=f"by-hand-{role}", role=role, subject="oidc:ada")
        await plane.api.write({f"{keys.BINDINGS.prefix}{binding.name}": binding})
    assert list((await who(plane, plane.issuer.sign())).roles) == []


@asynccontextmanager
async def watching_before_the_end(plane: JwtPlane, skew: float = 0.0) -> AsyncIterator[tuple[Watch, str, float]]:
    """A watch, its token and the moment at which the token ends; that moment is further away on a busy machine."""
    for seconds in (2.5, 10.0, 40.0):
        end = time.time() + seconds
        token = plane.issuer.sign(exp=end - skew)
        async with AsyncExitStack() as stack:
            try:
                watch = await stack.enter_async_context(watching(plane, token))
            except grpc.aio.AioRpcError:
                continue
            if time.time() < end - 0.5:
                yield watch, token, end
                return
    raise AssertionError("no watch was opened within 40 s")


async def test_a_stream_ends_at_the_end_of_its_token_and_may_come_back_within_the_skew(plane: JwtPlane) -> None:
    await plane.bind("ada", "submitter", subject="oidc:ada")
    async with watching_before_the_end(plane) as (watch, token, end):
        code = await watch.ended(within=end - time.time() + END_SECONDS)
        assert end <= time.time() <= end + END_SECONDS
        assert code is Code.UNAVAILABLE
    # The clock of the issuer may be behind: a new call is served, and a new stream lasts until the skew is over.
    assert (await who(plane, token)).name == "oidc:ada"
    async with watching(plane, token) as watch:
        with pytest.raises(TimeoutError):
            await watch.ended(within=0.3)
    async with watching_before_the_end(plane, skew=60.0) as (watch, _, end):
        assert await watch.ended(within=end - time.time() + END_SECONDS) is Code.UNAUTHENTICATED


async def test_a_stream_ends_when_a_binding_of_its_groups_changes(plane: JwtPlane) -> None:
    await plane.bind("film", "viewer", group="oidc:film")
    async with watching(plane, plane.issuer.sign(groups=["film"])) as watch:
        await plane.api.write({f"{keys.BINDINGS.prefix}film": None})
        assert await watch.ended() is Code.UNAVAILABLE


async def test_a_stream_ends_when_the_issuer_withdraws_the_key(plane: JwtPlane) -> None:
    await plane.bind("ada", "submitter", subject="oidc:ada")
    kept, withdrawn = plane.issuer.sign(), plane.issuer.sign(jti="2")
    plane.issuer.rotate("second", keep=True)
    await plane.keys.look()
    async with watching(plane, kept) as watch:
        # A key beside the old one changes nothing.
        with pytest.raises(TimeoutError):
            await watch.ended(within=0.2)
    async with watching(plane, withdrawn) as watch:
        plane.issuer.published = {"second"}
        await plane.keys.look()
        assert await watch.ended() is Code.UNAUTHENTICATED


async def test_tokens_of_the_plane_are_taken_beside_those_of_the_issuer(plane: JwtPlane) -> None:
    assert (await who(plane, await plane.token("ada", "viewer"))).name == "ada"
    answer = await plane.ask("Access.WhoAmI", access_pb2.WhoAmIRequest(), "no-token-at-all")
    assert answer.code is Code.UNAUTHENTICATED
