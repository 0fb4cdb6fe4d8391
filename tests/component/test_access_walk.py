"""A walk over every method of every service with every sort of credential: refused as designed, and nothing written."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import NamedTuple

import grpc
import pytest
from google.protobuf import descriptor_pb2, descriptor_pool
from google.protobuf.descriptor import MethodDescriptor
from google.protobuf.message import Message

from controlplane.aio.clock import SystemClock
from controlplane.apiserver.access_book import AccessBook
from controlplane.apiserver.audit import AuditLog
from controlplane.apiserver.authorisation import RIGHTS
from controlplane.apiserver.call import Call
from controlplane.apiserver.edge import grpc_calls
from controlplane.apiserver.edge.access_gate import AccessGate, GatePorts
from controlplane.apiserver.edge.limited_server import LimitedServer
from controlplane.apiserver.edge.methods import unary
from controlplane.model.access import SECRET_BYTES, token_text
from controlplane.model.errors import Broken
from controlplane.wire import transport
from controlplane.wire.v1 import jobs_pb2
from tests.component.access_requests import LAST, requests_for
from tests.component.access_stage import (
    KEY,
    OTHER_TARGET,
    TARGET,
    Answer,
    Plane,
    Work,
    a_plane,
    ask,
    methods,
    plane_objects,
)
from tests.component.api_stage import an_api, mint
from tests.etcd import Etcd

Code = grpc.StatusCode
ADA, BOB = Work("ada"), Work("bob")
NAMES = [method.full_name.removeprefix("controlplane.v1.") for method in methods()]

# By rule, who may ever use a method; "bounded" is a viewer of one owner's objects.
_ALL = frozenset({"admin", "operator", "submitter", "viewer", "bounded", "joblet", "replica"})
_READERS_OF_OWNED = frozenset({"admin", "operator", "submitter", "viewer", "bounded"})
_READERS_OF_ALL = frozenset({"admin", "operator", "viewer"})
_OPERATORS = frozenset({"admin", "operator"})
_OWNERS = frozenset({"admin", "submitter"})
_OWNED = ("Jobs", "Packets", "Resources", "Orders", "Fulfilments", "Events")
_READS = ("Get", "List", "Watch", "ListTasks", "Logs", "Explain")
_SINGLE = {
    "Logs.Read": frozenset({"replica"}),
    "Joblets.Connect": frozenset({"admin", "joblet"}),
    "Targets.Create": frozenset({"admin", "operator", "joblet"}),
    "Cluster.Apply": frozenset({"admin", "operator", "submitter"}),
    "Cluster.StepDown": frozenset({"admin", "operator", "replica"}),
    "Cluster.EndRestore": frozenset({"admin", "operator", "replica"}),
    "Cluster.UpdateSettings": _OPERATORS,
    "Cluster.GetSettings": _READERS_OF_ALL,
    **dict.fromkeys(("Cluster.GetTotals", "Cluster.WatchTotals"), _READERS_OF_OWNED),
    "Cluster.Hash": _READERS_OF_ALL,
    **dict.fromkeys(("Access.CreateEnrolment", "Access.Enrol"), _OPERATORS),
    "Access.Renew": frozenset({"admin", "joblet"}),
    **dict.fromkeys(("Access.WhoAmI", "Access.CanI"), _ALL),
}  # fmt: skip


def allowed_roles(name: str) -> frozenset[str]:
    service, method = name.split(".")
    if name in _SINGLE:
        return _SINGLE[name]
    if service == "Access":
        return frozenset({"admin"})
    if service in _OWNED:
        return _READERS_OF_OWNED if method in _READS else _OWNERS
    if service == "Cluster" or (service == "Targets" and method in _READS):
        return _ALL
    return _READERS_OF_ALL if method in _READS else _OPERATORS


@pytest.fixture
async def plane(emptied: Etcd) -> AsyncIterator[Plane]:
    async with a_plane(emptied) as started:
        await started.api.write(plane_objects())
        for work in (ADA, BOB):
            await work.begin(started, await started.token(work.owner, "submitter"))
        await started.bind("spare-binding", "viewer", subject="nobody")
        yield started


class Credentials(NamedTuple):
    by_role: dict[str, str]

    @classmethod
    async def of(cls, plane: Plane) -> Credentials:
        return cls({
            "admin": await plane.token("root", "admin"),
            "operator": await plane.token("olga", "operator"),
            "submitter": await plane.token("ada", "submitter"),
            "viewer": await plane.token("vera", "viewer"),
            "bounded": await plane.token("vince", "viewer", owner="ada"),
            "joblet": await plane.token("joan", "joblet", targets=(TARGET, OTHER_TARGET, "new-target")),
            "replica": KEY.replica_credential(plane.api.address),
        })  # fmt: skip


async def invalid_credentials(plane: Plane) -> dict[str, transport.Metadata]:
    revoked, text = await plane.token_record("eve", "admin")
    await plane.revoke(revoked)
    good = await plane.token("root", "admin")
    return {
        "none": (),
        "empty": (("authorization", ""),),
        "another scheme": (("authorization", f"Basic {good}"),),
        "junk": transport.credentials("junk"),
        "a prefix only": transport.credentials("cp_"),
        "a cut token": transport.credentials(good[:-1]),
        "an unknown token": transport.credentials(token_text(b"u" * SECRET_BYTES)),
        "an expired token": transport.credentials(await plane.token("eve", "admin", expires_in=-1)),
        "a revoked token": transport.credentials(text),
        "a forged credential": transport.credentials("cpk_e30=." + "0" * 64),
        "a credential for another replica": transport.credentials(KEY.replica_credential("127.0.0.1:1")),
    }


async def asked(
    plane: Plane, method: MethodDescriptor, requests: list[Message], metadata: transport.Metadata
) -> Answer:
    """The answer to a call that must write nothing."""
    before = await plane.api.store.revision()
    answer = await ask(plane.api.channel, method, requests, metadata)
    assert await plane.api.store.revision() == before, f"{method.full_name} wrote"
    return answer


async def test_without_valid_credentials_every_method_is_refused_and_nothing_is_written(plane: Plane) -> None:
    ways = [(method, list(requests_for(method, ADA))) for method in methods()]
    ways += [(method, []) for method in methods() if method.client_streaming]
    for sort, metadata in (await invalid_credentials(plane)).items():
        before = await plane.api.store.revision()
        answers = await asyncio.gather(*(ask(plane.api.channel, *way, metadata) for way in ways))
        assert await plane.api.store.revision() == before, sort
        for (method, _), answer in zip(ways, answers, strict=True):
            assert (answer.code, answer.messages) == (Code.UNAUTHENTICATED, []), (sort, method.full_name, answer)


async def test_a_wrong_role_is_refused_and_nothing_is_written(plane: Plane) -> None:
    credentials = (await Credentials.of(plane)).by_role
    refused = 0
    for method, name in zip(methods(), NAMES, strict=True):
        for role in _ALL - allowed_roles(name):
            metadata = transport.credentials(credentials[role])
            answer = await asked(plane, method, list(requests_for(method, ADA)), metadata)
            assert (answer.code, answer.messages) == (Code.PERMISSION_DENIED, []), (role, name, answer)
            assert role == "replica" or "may not" in answer.details, (role, name, answer)
            refused += 1
    assert refused > 200


# The answer to ada about an object of bob; all methods that are not named here must answer NOT_FOUND. So does the
# creation of a packet, which names a job of bob.
_FORBIDDEN = ("Jobs.Create", "Resources.Create", "Orders.Create", "Orders.Submit", "Orders.Plan",
              "Cluster.Apply")  # fmt: skip
_WITHOUT_THE_OBJECT = ("List", "Watch", "SubmitBatch")


async def test_the_objects_of_another_owner_do_not_exist_and_nothing_is_written(plane: Plane) -> None:
    token = await plane.token("ada", "submitter")
    for method, name in zip(methods(), NAMES, strict=True):
        if name.split(".")[0] not in _OWNED and name not in _FORBIDDEN:
            continue
        answer = await asked(plane, method, list(requests_for(method, BOB)), transport.credentials(token))
        if name in _FORBIDDEN:
            assert answer.code is Code.PERMISSION_DENIED, (name, answer)
        elif method.name in _WITHOUT_THE_OBJECT:
            assert answer.code is Code.OK, (name, answer)
            _assert_nothing_of_bob(answer)
        else:
            assert (answer.code, answer.messages) == (Code.NOT_FOUND, []), (name, answer)


def _assert_nothing_of_bob(answer: Answer) -> None:
    for message in answer.messages:
        if hasattr(message, "results"):
            assert [result.failure.code for result in message.results] == ["Forbidden"]
        elif hasattr(message, "type"):
            assert message.type == "sync"
        assert BOB.mark not in str(message)
        assert not any(identity in str(message) for identity in BOB.identities)


async def test_the_requests_of_the_walk_are_valid_for_whoever_may_make_them(plane: Plane) -> None:
    """Else the walk would prove nothing: a refusal could be the request's own."""
    credentials = (await Credentials.of(plane)).by_role
    spare, _ = await plane.token_record("spare", "viewer")
    never = (Code.UNAUTHENTICATED, Code.PERMISSION_DENIED, Code.NOT_FOUND, Code.INVALID_ARGUMENT, Code.UNIMPLEMENTED,
             Code.INTERNAL, Code.UNKNOWN)  # fmt: skip
    for method, name in sorted(zip(methods(), NAMES, strict=True), key=lambda pair: _place(pair[1])):
        role = "admin" if "admin" in allowed_roles(name) else "replica"
        requests = list(requests_for(method, ADA))
        if name == "Access.RevokeToken":
            requests[0].id = spare.id  # type: ignore[attr-defined]
        answer = await ask(plane.api.channel, method, requests, transport.credentials(credentials[role]))
        assert answer.code not in never, (name, answer)


def _place(name: str) -> int:
    return max((at for at, word in enumerate(LAST, 1) if name.endswith(word)), default=0)


def test_every_method_has_a_row_in_the_table_of_rights() -> None:
    assert {method.full_name for method in methods()} <= set(RIGHTS)


@pytest.mark.parametrize("closed", [True, False], ids=["closed", "open"])
async def test_a_method_without_a_row_fails_the_start(emptied: Etcd, closed: bool) -> None:
    planted = descriptor_pb2.FileDescriptorProto(name=f"planted-{closed}.proto", package="controlplane.v1")
    planted.dependency.append(jobs_pb2.DESCRIPTOR.name)
    service = planted.service.add(name=f"Planted{closed}")
    service.method.add(name="Steal", input_type=".controlplane.v1.Job", output_type=".controlplane.v1.Job")
    descriptor_pool.Default().Add(planted)

    async def steal(_call: Call, request: jobs_pb2.Job) -> jobs_pb2.Job:
        return request

    rows = {"Steal": unary(jobs_pb2.Job, jobs_pb2.Job, steal)}
    async with an_api(emptied.endpoint, closed=closed) as api:
        book = AccessBook(api.reads, SystemClock()) if closed else None
        clock = SystemClock()
        ports = GatePorts(api.cache, clock, mint, grpc_calls.refuse, book, AuditLog("", clock))
        server = LimitedServer(grpc.aio.server(), AccessGate(ports))
        name = f"controlplane.v1.Planted{closed}"
        with pytest.raises(Broken, match="Steal has no row in the table of rights"):
            server.add_registered_method_handlers(name, grpc_calls.rpc_handlers(name, rows))
