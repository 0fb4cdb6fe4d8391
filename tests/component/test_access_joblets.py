"""A stolen credential of a joblet is good for its own target only; one of a replica for the named replica only."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import grpc
import pytest
from google.protobuf.message import Message

from controlplane.store import keys
from controlplane.wire import transport
from controlplane.wire.v1 import (
    access_pb2,
    cluster_pb2,
    common_pb2,
    events_pb2,
    joblets_pb2,
    joblets_pb2_grpc,
    logs_pb2,
    orders_pb2,
    targets_pb2,
)
from tests.component.access_requests import a_hello
from tests.component.access_stage import KEY, OTHER_TARGET, TARGET, Plane, Work, a_plane, plane_objects, stream_end
from tests.component.joblet_sessions.stage import Ack, a_report, answered
from tests.etcd import Etcd

Code = grpc.StatusCode
ADA = Work("ada")
OWN, OTHERS = OTHER_TARGET, TARGET
ABSENT = "edge-9"


@pytest.fixture
async def plane(emptied: Etcd) -> AsyncIterator[Plane]:
    async with a_plane(emptied) as started:
        await started.api.write(plane_objects())
        await ADA.begin(started, await started.token("ada", "submitter"))
        yield started


@pytest.fixture(params=["token", "cluster key"])
async def stolen(plane: Plane, request: pytest.FixtureRequest) -> str:
    """A joblet's credential for the target OWN and the driver process."""
    if request.param == "token":
        return await plane.token("joan", "joblet", targets=(OWN,), driver="process")
    return KEY.joblet_credential(OWN, "process", "ada")


@asynccontextmanager
async def connected(plane: Plane, credential: str, **hello: Any) -> AsyncIterator[Any]:
    metadata = transport.credentials(credential)
    call: Any = joblets_pb2_grpc.JobletsStub(plane.api.channel).Connect(metadata=metadata)
    await call.write(a_hello(**hello))
    try:
        yield call
    finally:
        call.cancel()


async def test_a_hello_for_another_target_is_refused_before_anything_is_told(plane: Plane, stolen: str) -> None:
    """Whether the target exists, has a joblet or not: the answers differ in the name only."""
    before = await plane.api.store.revision()
    told = set()
    for target in (OTHERS, ABSENT):
        for more in ({}, {"driver": "simulated"}, {"highest_revision": 10**9}, {"instance": ""}):
            answer = await plane.ask("Joblets.Connect", [a_hello(target=target, **more)], stolen)
            assert (answer.code, answer.messages) == (Code.PERMISSION_DENIED, []), answer
            told.add(answer.details.replace(target, "*"))
    assert len(told) == 1
    assert await plane.api.store.revision() == before


async def test_another_driver_is_refused(plane: Plane, stolen: str) -> None:
    before = await plane.api.store.revision()
    answer = await plane.ask("Joblets.Connect", [a_hello(target=OWN, driver="kubernetes")], stolen)
    assert (answer.code, answer.messages) == (Code.PERMISSION_DENIED, [])
    assert await plane.api.store.revision() == before


async def test_reports_for_another_target_are_not_stored(plane: Plane, stolen: str) -> None:
    """The session of the own target carries reports for a fulfilment of another one, under either name."""
    placed = ADA.progress()[keys.desired(TARGET, ADA.fulfilment)]
    stored = await plane.api.store.get(keys.observed(TARGET, ADA.fulfilment))
    async with connected(plane, stolen, target=OWN) as call:
        session = await _welcome(call)
        for target in (OTHERS, OWN):
            report = a_report(placed, "Succeeded", 0, target=target, session=session)  # type: ignore[arg-type]
            await call.write(joblets_pb2.JobletBatch(messages=[report]))
            ack = await _ack(call)
            assert ack.code in ("NotFound", "StaleAttempt", "Invalid"), ack
            assert ADA.mark not in f"{ack.message} {ack.stored}"
    assert await plane.api.store.get(keys.observed(TARGET, ADA.fulfilment)) == stored
    assert await plane.api.store.get(keys.observed(OWN, ADA.fulfilment)) is None


async def test_a_second_hello_does_not_change_the_target(plane: Plane, stolen: str) -> None:
    async with connected(plane, stolen, target=OWN) as call:
        await _welcome(call)
        await call.write(a_hello(target=OTHERS))
        async with asyncio.timeout(10):
            assert await stream_end(call) is Code.INVALID_ARGUMENT


FORBIDDEN: list[tuple[str, Message]] = [
    ("Orders.Submit", ADA.order()),
    ("Orders.Submit", ADA.order(owner="joan")),
    ("Orders.List", common_pb2.ListRequest()),
    ("Orders.Get", common_pb2.GetRequest(name=ADA.running)),
    ("Orders.Logs", logs_pb2.LogsRequest(id=ADA.running)),
    ("Fulfilments.List", common_pb2.ListRequest(target=OWN)),
    ("Events.List", events_pb2.ListEventsRequest()),
    ("Logs.Read", logs_pb2.ReadLogRequest(target=OWN)),
    ("Cluster.Apply", cluster_pb2.ApplyRequest()),
    ("Secrets.List", common_pb2.ListRequest()),
    ("Targets.Create", targets_pb2.Target(name=ABSENT, driver="process")),
    ("Targets.Create", targets_pb2.Target(name=OTHERS, driver="process")),
    ("Targets.Update", targets_pb2.Target(name=OWN, driver="process")),
    ("Targets.Delete", common_pb2.DeleteRequest(name=OWN)),
    ("Access.CreateToken", access_pb2.CreateTokenRequest(subject="eve", roles=["admin"])),
]


async def test_nothing_else_is_allowed(plane: Plane, stolen: str) -> None:
    for method, request in FORBIDDEN:
        before = await plane.api.store.revision()
        answer = await plane.ask(method, request, stolen)
        assert (answer.code, answer.messages) == (Code.PERMISSION_DENIED, []), (method, answer)
        assert await plane.api.store.revision() == before, method


async def test_a_joblet_may_make_its_own_target_and_not_give_it_a_secret_or_a_driver(emptied: Etcd) -> None:
    """A replica would run a joblet with that secret."""
    async with a_plane(emptied) as plane:
        await plane.api.write(plane_objects())
        token = await plane.token("joan", "joblet", targets=("mine",), driver="process")
        for name, credential, owner in (
            ("mine", token, "joan"),
            ("yours", KEY.joblet_credential("yours", "process", "ada"), "ada"),
        ):
            for refused in (
                targets_pb2.Target(name=name, driver="kubernetes", kubeconfig_secret="plane-secret"),
                targets_pb2.Target(name=name, driver="kubernetes"),
                targets_pb2.Target(name=name, driver="process", owner="bob"),
            ):
                answer = await plane.ask("Targets.Create", refused, credential)
                assert answer.code is Code.PERMISSION_DENIED, answer
            wish = targets_pb2.Target(name=name, driver="process", creator="bob")
            made = (await plane.ask("Targets.Create", wish, credential)).messages[0].item
            assert (made.owner, made.creator) == (owner, "joblet")


async def test_a_replica_is_known_at_the_address_that_its_credential_names_only(shared: Etcd) -> None:
    read = logs_pb2.ReadLogRequest(target=TARGET)
    async with a_plane(shared) as first, a_plane(shared, "replica-2") as second:
        for_first = KEY.replica_credential(first.api.address)
        assert (await first.ask("Logs.Read", read, for_first)).code is Code.UNAVAILABLE
        assert (await second.ask("Logs.Read", read, for_first)).code is Code.UNAUTHENTICATED
        assert (await second.ask("Logs.Read", read, KEY.replica_credential(""))).code is Code.UNAUTHENTICATED
        assert (await first.ask("Orders.List", common_pb2.ListRequest(), for_first)).code is Code.PERMISSION_DENIED
        assert (await first.ask("Orders.Submit", orders_pb2.Order(), for_first)).code is Code.PERMISSION_DENIED


@pytest.mark.parametrize("role", ["admin", "operator", "submitter", "viewer"])
async def test_no_token_of_a_person_reads_a_log_as_a_replica_does(plane: Plane, role: str) -> None:
    answer = await plane.ask("Logs.Read", logs_pb2.ReadLogRequest(target=TARGET), await plane.token("root", role))
    assert (answer.code, answer.messages) == (Code.PERMISSION_DENIED, [])


async def _welcome(call: Any) -> str:
    async with asyncio.timeout(10):
        batch = await call.read()
    return str(batch.messages[0].welcome.session)


async def _ack(call: Any) -> Ack:
    async with asyncio.timeout(10):
        while True:
            for message in (await call.read()).messages:
                if message.WhichOneof("message") == "report_ack":
                    return answered(message.report_ack)
