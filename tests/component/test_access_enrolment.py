"""Enrolment over a real etcd: one joblet a token, repeated requests, renewal, revocation, and nothing beyond."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

import grpc
import pytest
from msgspec.structs import replace

from controlplane.model import times
from controlplane.model.access import SECRET_BYTES, Token, token_digest, token_text
from controlplane.model.settings import Settings
from controlplane.store import codec, keys
from controlplane.wire import transport
from controlplane.wire.v1 import access_pb2, common_pb2, joblets_pb2_grpc, orders_pb2, targets_pb2
from tests.component.access_requests import a_hello, requests_for
from tests.component.access_stage import Answer, Plane, Work, a_plane, ask, methods, plane_objects, stream_end
from tests.etcd import Etcd

Code = grpc.StatusCode
TARGET = "host-7"
ENDED_WITHIN_SECONDS = 1.0


@pytest.fixture
async def plane(emptied: Etcd) -> AsyncIterator[Plane]:
    async with a_plane(emptied) as started:
        yield started


def a_text(letter: str) -> str:
    return token_text(letter.encode() * SECRET_BYTES)


async def an_enrolment(plane: Plane, *targets: str, driver: str = "", **more: Any) -> access_pb2.CreatedToken:
    token = await plane.token("olga", "operator")
    request = access_pb2.CreateEnrolmentRequest(targets=targets or (TARGET,), driver=driver, **more)
    answer = await plane.ask("Access.CreateEnrolment", request, token)
    assert answer.code is Code.OK, answer
    made: access_pb2.CreatedToken = answer.messages[0]
    return made


async def enrol(plane: Plane, token: str, text: str, *targets: str, driver: str = "process", **more: Any) -> Answer:
    request = access_pb2.EnrolRequest(targets=targets or (TARGET,), driver=driver, digest=token_digest(text), **more)
    return await plane.ask("Access.Enrol", request, token)


async def renew(plane: Plane, token: str, text: str) -> Answer:
    return await plane.ask("Access.Renew", access_pb2.RenewRequest(digest=token_digest(text)), token)


async def record(plane: Plane, identity: str) -> Token:
    stored = await plane.api.store.get(f"{keys.TOKENS.prefix}{identity}")
    assert stored is not None
    return codec.read(stored, Token)


async def is_known(plane: Plane, token: str) -> bool:
    answer = await plane.ask("Access.WhoAmI", access_pb2.WhoAmIRequest(), token)
    return answer.code is Code.OK


async def test_an_enrolment_token_becomes_a_credential_for_its_target_which_is_created(plane: Plane) -> None:
    made = await an_enrolment(plane, driver="process")
    template = targets_pb2.Target(region="eu", labels={"disk": "ssd"})
    answer = await enrol(plane, made.token, a_text("a"), template=template)
    assert answer.code is Code.OK, answer
    item = answer.messages[0].item
    assert (item.id, list(item.roles), list(item.targets)) == (made.item.id, ["joblet"], [TARGET])
    assert (item.driver, item.owner, item.creator) == ("process", "olga", "olga")
    assert answer.messages[0].renew_after_seconds == 86400

    target = await plane.ask("Targets.Get", common_pb2.GetRequest(name=TARGET), a_text("a"))
    shown = target.messages[0].item if hasattr(target.messages[0], "item") else target.messages[0]
    assert (shown.owner, shown.creator, shown.region, shown.driver) == ("olga", "joblet", "eu", "process")
    connected = await plane.ask("Joblets.Connect", [a_hello(target=TARGET)], a_text("a"))
    assert connected.code is Code.OK, connected
    # etcd has digests only.
    for text in (made.token, a_text("a")):
        stored = await plane.api.store.get(f"{keys.TOKENS.prefix}{item.id}")
        assert stored is not None
        assert text.encode() not in stored.value


async def test_of_two_joblets_with_one_token_exactly_one_is_enrolled(emptied: Etcd) -> None:
    async with a_plane(emptied) as first, a_plane(emptied, "replica-2") as second:
        for round_ in range(5):
            target = f"host-{round_}"
            made = await an_enrolment(first, target)
            texts = [token_text(bytes([round_, at]) * 16) for at in range(6)]
            answers = await asyncio.gather(
                *(enrol((first, second)[at % 2], made.token, text, target) for at, text in enumerate(texts))
            )
            codes = [answer.code for answer in answers]
            assert codes.count(Code.OK) == 1, codes
            assert codes.count(Code.UNAUTHENTICATED) == 5, codes
            winner = texts[codes.index(Code.OK)]
            assert (await record(first, made.item.id)).digest == token_digest(winner)
            assert [await is_known(second, text) for text in texts] == [text == winner for text in texts]


async def test_the_same_joblet_gets_its_answer_again_and_another_is_told_that_the_token_is_used_up(
    plane: Plane,
) -> None:
    made = await an_enrolment(plane)
    first = await enrol(plane, made.token, a_text("a"))
    before = await plane.api.store.revision()
    again = await enrol(plane, made.token, a_text("a"))
    assert again.messages == first.messages
    other = await enrol(plane, made.token, a_text("b"))
    assert (other.code, "used up" in other.details, f"cpctl enrol {TARGET}" in other.details) == (
        Code.UNAUTHENTICATED, True, True,
    )  # fmt: skip
    assert await plane.api.store.revision() == before


async def test_an_expired_or_revoked_enrolment_token_enrols_nobody(plane: Plane) -> None:
    expired = await plane.token("joblet:x", "enrolment", expires_in=-1, targets=(TARGET,))
    assert (await enrol(plane, expired, a_text("a"))).code is Code.UNAUTHENTICATED
    made = await an_enrolment(plane)
    await plane.revoke(await record(plane, made.item.id))
    assert (await enrol(plane, made.token, a_text("a"))).code is Code.UNAUTHENTICATED
    assert not await is_known(plane, a_text("a"))


@pytest.mark.parametrize(
    ("targets", "driver"),
    [(("host-8",), "process"), ((TARGET, "host-8"), "process"), ((TARGET,), "simulated")],
)
async def test_another_target_or_driver_is_refused_and_uses_nothing_up(
    plane: Plane, targets: tuple[str, ...], driver: str
) -> None:
    made = await an_enrolment(plane, driver="process")
    before = await plane.api.store.revision()
    answer = await enrol(plane, made.token, a_text("a"), *targets, driver=driver)
    assert answer.code is Code.PERMISSION_DENIED, answer
    assert await plane.api.store.revision() == before
    assert (await enrol(plane, made.token, a_text("a"))).code is Code.OK


@pytest.mark.parametrize("fields", [
    {"digest": "short"}, {"targets": ["UPPER"]}, {"targets": []}, {"targets": [TARGET, TARGET]}, {"driver": "magic"},
    {"template": targets_pb2.Target(region="a b")}, {"template": targets_pb2.Target(kubeconfig_secret="x")},
])  # fmt: skip
async def test_a_bad_request_names_its_field_and_uses_nothing_up(plane: Plane, fields: dict[str, Any]) -> None:
    made = await an_enrolment(plane)
    before = await plane.api.store.revision()
    given = {"targets": [TARGET], "driver": "process", "digest": "a" * 64, **fields}
    answer = await plane.ask("Access.Enrol", access_pb2.EnrolRequest(**given), made.token)
    assert answer.code in (Code.INVALID_ARGUMENT, Code.PERMISSION_DENIED), answer
    assert next(iter(fields)) in answer.details
    assert await plane.api.store.revision() == before
    assert (await record(plane, made.item.id)).is_enrolment


async def test_a_target_of_another_driver_is_not_taken_over(plane: Plane) -> None:
    await plane.api.write(plane_objects())
    made = await an_enrolment(plane, "edge-1")
    answer = await enrol(plane, made.token, a_text("a"), "edge-1", driver="simulated")
    assert (answer.code, "driver" in answer.details) == (Code.PERMISSION_DENIED, True)
    assert (await record(plane, made.item.id)).is_enrolment


async def test_an_enrolment_token_does_nothing_but_enrol(plane: Plane) -> None:
    """Neither before nor after it was used, also with a binding for its subject."""
    ada = Work("ada")
    await plane.api.write(plane_objects())
    await ada.begin(plane, await plane.token("ada", "submitter"))
    await plane.bind("planted", "admin", subject=f"joblet:{TARGET}")
    made = await an_enrolment(plane)
    for used in (False, True):
        if used:
            assert (await enrol(plane, made.token, a_text("a"))).code is Code.OK
        before = await plane.api.store.revision()
        for method in methods():
            if method.full_name == "controlplane.v1.Access.Enrol":
                continue
            answer = await ask(
                plane.api.channel, method, list(requests_for(method, ada)), transport.credentials(made.token)
            )
            assert (answer.code, answer.messages) == (Code.PERMISSION_DENIED, []), (method.full_name, answer)
        assert await plane.api.store.revision() == before
    # The credential is that of a joblet, whatever is bound to its name.
    submitted = await plane.ask("Orders.Submit", orders_pb2.Order(), a_text("a"))
    assert submitted.code is Code.PERMISSION_DENIED, submitted


@pytest.mark.parametrize("role", ["submitter", "viewer", "joblet"])
async def test_who_may_not_operate_targets_may_not_enrol(plane: Plane, role: str) -> None:
    token = await plane.token("bob", role, targets=(TARGET,) if role == "joblet" else ())
    before = await plane.api.store.revision()
    request = access_pb2.CreateEnrolmentRequest(targets=[TARGET])
    assert (await plane.ask("Access.CreateEnrolment", request, token)).code is Code.PERMISSION_DENIED
    assert (await enrol(plane, token, a_text("a"), id="0" * 26)).code is Code.PERMISSION_DENIED
    assert await plane.api.store.revision() == before


async def test_only_an_administrator_names_another_owner(plane: Plane) -> None:
    request = access_pb2.CreateEnrolmentRequest(targets=[TARGET], owner="film")
    answer = await plane.ask("Access.CreateEnrolment", request, await plane.token("olga", "operator"))
    assert (answer.code, "owner" in answer.details) == (Code.PERMISSION_DENIED, True)
    answer = await plane.ask("Access.CreateEnrolment", request, await plane.token("root", "admin"))
    assert answer.messages[0].item.owner == "film"


async def test_an_operator_enrols_without_an_enrolment_token_and_a_repeat_makes_no_second_credential(
    plane: Plane,
) -> None:
    token, identity = await plane.token("olga", "operator"), "01" + "A" * 24
    first = await enrol(plane, token, a_text("a"), id=identity)
    assert first.code is Code.OK, first
    before = await plane.api.store.revision()
    assert (await enrol(plane, token, a_text("a"), id=identity)).messages == first.messages
    assert (await enrol(plane, token, a_text("b"), id=identity)).code is Code.ALREADY_EXISTS
    assert await plane.api.store.revision() == before


async def test_a_renewal_replaces_the_text_and_the_former_text_ends_after_a_while(plane: Plane) -> None:
    await plane.api.write({keys.SETTINGS: Settings(joblet_credential=14)})
    made = await an_enrolment(plane)
    await enrol(plane, made.token, a_text("a"))
    first = await renew(plane, a_text("a"), a_text("b"))
    assert first.code is Code.OK, first
    # A lost answer: the same request again, with either text.
    assert (await renew(plane, a_text("a"), a_text("b"))).messages == first.messages
    assert (await renew(plane, a_text("b"), a_text("b"))).messages == first.messages
    # The former text renews nothing else, and ends after half of the time between renewals.
    assert (await renew(plane, a_text("a"), a_text("c"))).code is Code.UNAUTHENTICATED
    assert await is_known(plane, a_text("a"))
    async with asyncio.timeout(10):
        while await is_known(plane, a_text("a")):
            await asyncio.sleep(0.05)
    assert await is_known(plane, a_text("b"))
    # The enrolment token is of no use any more.
    assert (await enrol(plane, made.token, a_text("b"))).code is Code.UNAUTHENTICATED


async def test_an_expired_credential_is_refused_and_cannot_be_renewed(plane: Plane) -> None:
    made = await an_enrolment(plane)
    await enrol(plane, made.token, a_text("a"))
    token = await record(plane, made.item.id)
    ended = times.show(times.parse(token.expires, "expires") - timedelta(days=8))
    await plane.api.write({f"{keys.TOKENS.prefix}{token.id}": replace(token, expires=ended)})
    answer = await renew(plane, a_text("a"), a_text("b"))
    assert (answer.code, "expired" in answer.details) == (Code.UNAUTHENTICATED, True)


async def test_other_credentials_are_not_renewed(plane: Plane) -> None:
    token = await plane.token("joan", "joblet", targets=(TARGET,), expires_in=60)
    answer = await renew(plane, token, a_text("b"))
    assert answer.code is Code.FAILED_PRECONDITION, answer
    assert not await is_known(plane, a_text("b"))


async def test_a_revoked_credential_ends_its_stream_within_a_second_and_is_not_renewed(plane: Plane) -> None:
    made = await an_enrolment(plane)
    await enrol(plane, made.token, a_text("a"))
    stub = joblets_pb2_grpc.JobletsStub(plane.api.channel)
    call: Any = stub.Connect(metadata=transport.credentials(a_text("a")))
    await call.write(a_hello(target=TARGET))
    assert (await call.read()).messages[0].welcome.session
    admin = await plane.token("root", "admin")
    revoked = await plane.ask("Access.RevokeToken", access_pb2.RevokeTokenRequest(id=made.item.id), admin)
    assert revoked.code is Code.OK
    async with asyncio.timeout(ENDED_WITHIN_SECONDS):
        assert await stream_end(call) is Code.UNAUTHENTICATED
    assert (await renew(plane, a_text("a"), a_text("b"))).code is Code.UNAUTHENTICATED
    assert (await enrol(plane, made.token, a_text("a"))).code is Code.UNAUTHENTICATED


async def test_a_stream_goes_on_when_its_credential_is_renewed_and_ends_with_the_former_text(plane: Plane) -> None:
    await plane.api.write({keys.SETTINGS: Settings(joblet_credential=14)})
    made = await an_enrolment(plane)
    await enrol(plane, made.token, a_text("a"))
    stub = joblets_pb2_grpc.JobletsStub(plane.api.channel)
    call: Any = stub.Connect(metadata=transport.credentials(a_text("a")))
    await call.write(a_hello(target=TARGET))
    assert (await call.read()).messages[0].welcome.session
    answer = await renew(plane, a_text("a"), a_text("b"))
    loop = asyncio.get_running_loop()
    began = loop.time()
    async with asyncio.timeout(10):
        assert await stream_end(call) is Code.UNAUTHENTICATED
    assert loop.time() - began > answer.messages[0].former_seconds / 2


async def test_a_renewal_in_a_race_with_a_revocation_brings_nothing_back(plane: Plane) -> None:
    admin = await plane.token("root", "admin")
    for round_ in range(10):
        target, first = f"host-{round_}", token_text(bytes([100 + round_]) * SECRET_BYTES)
        made = await an_enrolment(plane, target)
        await enrol(plane, made.token, first, target)
        following = token_text(bytes([200 + round_]) * SECRET_BYTES)
        request = access_pb2.RevokeTokenRequest(id=made.item.id)
        answers = await asyncio.gather(renew(plane, first, following), plane.ask("Access.RevokeToken", request, admin))
        assert answers[1].code is Code.OK, answers
        assert await plane.api.store.get(f"{keys.TOKENS.prefix}{made.item.id}") is None
        assert not await is_known(plane, following)
