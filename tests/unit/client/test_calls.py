"""Which endpoint is asked, what is repeated, and what a failure is called."""

from __future__ import annotations

import socket

import pytest

from controlplane.client import Client
from controlplane.client.caller import CallTimeouts
from controlplane.client.channels import EndpointChannel
from controlplane.model import errors
from controlplane.wire import transport
from controlplane.wire.v1 import cluster_pb2, common_pb2, jobs_pb2, orders_pb2
from tests.unit.client.scripted_replica import Broken, ScriptedReplica, always, failing

NOBODY = "127.0.0.1:1"
QUICK = CallTimeouts(connect_seconds=0.2, attempt_seconds=1.0, total_seconds=0.5)


async def test_a_refused_endpoint_is_left_for_the_next() -> None:
    replica = ScriptedReplica(Jobs_Get=always(jobs_pb2.Job(name="a")))
    async with replica.serve(), Client([NOBODY, replica.endpoint]) as client:
        assert (await client.jobs.get("a")).name == "a"


async def test_an_endpoint_that_accepts_and_never_answers_is_left_for_the_next() -> None:
    replica = ScriptedReplica(Jobs_Get=always(jobs_pb2.Job(name="a")))
    with socket.create_server(("127.0.0.1", 0)) as silent:
        endpoints = [f"127.0.0.1:{silent.getsockname()[1]}"]
        async with replica.serve(), Client(lambda: [*endpoints, replica.endpoint], timeouts=QUICK) as client:
            assert (await client.jobs.get("a")).name == "a"


async def test_when_nobody_answers_the_error_names_every_address() -> None:
    async with Client([NOBODY, "127.0.0.1:2"], timeouts=QUICK) as client:
        with pytest.raises(errors.Unavailable, match=r"127\.0\.0\.1:1, 127\.0\.0\.1:2"):
            await client.jobs.get("a")


async def test_a_submit_whose_answer_was_lost_is_repeated_elsewhere_under_the_same_identity() -> None:
    first = ScriptedReplica(Orders_Submit=failing(Broken()))
    second = ScriptedReplica(Orders_Submit=always(orders_pb2.OrderResponse(revision=7)))
    async with first.serve(), second.serve(), Client([first.endpoint, second.endpoint]) as client:
        await client.orders.submit(orders_pb2.Order(id=client.mint.make()))
    assert [name for name, _ in first.requests] == ["Orders.Submit"]
    assert first.requests == second.requests


async def test_a_submit_without_an_identity_is_not_repeated() -> None:
    first = ScriptedReplica(Orders_Submit=failing(Broken()))
    second = ScriptedReplica(Orders_Submit=always(orders_pb2.OrderResponse()))
    async with first.serve(), second.serve(), Client([first.endpoint, second.endpoint]) as client:
        with pytest.raises(errors.OutcomeUnknown):
            await client.orders.submit(orders_pb2.Order())
    assert second.requests == []


async def test_a_delete_whose_answer_was_lost_is_not_repeated() -> None:
    first = ScriptedReplica(Jobs_Delete=failing(Broken()))
    second = ScriptedReplica(Jobs_Delete=always(common_pb2.DeleteResponse()))
    async with first.serve(), second.serve(), Client([first.endpoint, second.endpoint]) as client:
        with pytest.raises(errors.OutcomeUnknown):
            await client.jobs.delete("a")
    assert second.requests == []


async def test_a_delete_that_certainly_did_not_apply_is_repeated() -> None:
    first = ScriptedReplica(Jobs_Delete=failing(errors.Unavailable("etcd is away")))
    second = ScriptedReplica(Jobs_Delete=always(common_pb2.DeleteResponse(revision=9)))
    async with first.serve(), second.serve(), Client([first.endpoint, second.endpoint]) as client:
        assert (await client.jobs.delete("a")).revision == 9


async def test_step_down_is_not_repeated_for_it_would_end_the_next_term_too() -> None:
    first = ScriptedReplica(Cluster_StepDown=failing(Broken()))
    second = ScriptedReplica(Cluster_StepDown=always(cluster_pb2.StepDownResponse()))
    async with first.serve(), second.serve(), Client([first.endpoint, second.endpoint]) as client:
        with pytest.raises(errors.OutcomeUnknown):
            await client.cluster.step_down()
    assert second.requests == []


async def test_an_error_of_the_server_comes_back_as_the_class_it_was_raised_as() -> None:
    replica = ScriptedReplica(Orders_Submit=failing(errors.Invalid("priority", "must be 1 to 100, not 0")))
    async with replica.serve(), Client([replica.endpoint]) as client:
        with pytest.raises(errors.Invalid) as caught:
            await client.orders.submit(orders_pb2.Order(id=client.mint.make()))
    assert (caught.value.field, caught.value.rule) == ("priority", "must be 1 to 100, not 0")
    assert replica.count("Orders.Submit") == 1


async def test_a_read_asks_for_the_revision_of_the_last_write() -> None:
    replica = ScriptedReplica(
        Orders_Submit=always(orders_pb2.OrderResponse(revision=42)), Orders_Get=always(orders_pb2.Order())
    )
    async with replica.serve(), Client([replica.endpoint]) as client:
        await client.orders.submit(orders_pb2.Order(id=client.mint.make()))
        await client.orders.get("x")
    assert replica.requests[-1][1].min_revision == 42


async def test_endpoints_that_moved_are_found_while_a_call_waits() -> None:
    replica = ScriptedReplica(Jobs_Get=always(jobs_pb2.Job(name="a")))
    asked = 0

    def endpoints() -> list[str]:
        nonlocal asked
        asked += 1
        return [NOBODY] if asked < 3 else [replica.endpoint]

    async with replica.serve(), Client(endpoints) as client:
        assert (await client.jobs.get("a")).name == "a"


async def test_a_token_leaves_the_machine_over_tls_only() -> None:
    channel = EndpointChannel("192.0.2.1:7101", lambda: "cp_secret", transport.PLAIN)
    with pytest.raises(errors.Invalid, match="ca-file"):
        _ = channel.metadata
    await channel.close()
    local = EndpointChannel("127.0.0.1:7101", lambda: "cp_secret", transport.PLAIN)
    assert local.metadata == transport.credentials("cp_secret")
    await local.close()
