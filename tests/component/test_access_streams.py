"""Streams and the rights with which they began; changes of one object, or of the last administrators, at one moment."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import grpc
import pytest

from controlplane.aio.clock import SystemClock
from controlplane.apiserver.access_book import AccessBook
from controlplane.apiserver.audit import AuditLog
from controlplane.apiserver.edge import grpc_calls
from controlplane.apiserver.edge.access_gate import AccessGate, GatePorts
from controlplane.model.access import Role
from controlplane.model.errors import Invalid
from controlplane.store import keys
from controlplane.wire import transport
from controlplane.wire.v1 import access_pb2, common_pb2, joblets_pb2_grpc, jobs_pb2, jobs_pb2_grpc, orders_pb2
from tests.component.access_requests import a_hello
from tests.component.access_stage import OTHER_TARGET, Plane, Work, a_plane, plane_objects, stream_end
from tests.component.api_stage import mint
from tests.etcd import Etcd

Code = grpc.StatusCode
ADA = Work("ada")
END_SECONDS = 1.0


@pytest.fixture
async def plane(emptied: Etcd) -> AsyncIterator[Plane]:
    async with a_plane(emptied) as started:
        await started.token("root", "admin")
        yield started


class Watch:
    """A watch of jobs that has had its `sync`."""

    def __init__(self, plane: Plane, token: str) -> None:
        stub: Any = jobs_pb2_grpc.JobsStub(plane.api.channel)
        self.call: Any = stub.Watch(common_pb2.WatchRequest(), metadata=transport.credentials(token))

    async def synced(self) -> Watch:
        async with asyncio.timeout(10):
            while (await self.call.read()).type != "sync":
                pass
        return self

    async def ended(self, within: float = END_SECONDS) -> grpc.StatusCode:
        """The status of the stream, which must come within so many seconds."""
        async with asyncio.timeout(within):
            return await stream_end(self.call)

    async def next_name(self) -> str:
        async with asyncio.timeout(10):
            return str((await self.call.read()).object.name)


@asynccontextmanager
async def watching(plane: Plane, *tokens: str) -> AsyncIterator[list[Watch]]:
    watches = [await Watch(plane, token).synced() for token in tokens]
    try:
        yield watches
    finally:
        for watch in watches:
            watch.call.cancel()


async def test_a_watch_ends_within_a_second_after_its_token_is_revoked(plane: Plane) -> None:
    token, text = await plane.token_record("ada", "submitter")
    root = await plane.token("root", "admin")
    async with watching(plane, text) as (watch,):
        revoked = await plane.ask("Access.RevokeToken", access_pb2.RevokeTokenRequest(id=token.id), root)
        assert revoked.code is Code.OK
        assert await watch.ended() is Code.UNAUTHENTICATED
    assert (await plane.ask("Jobs.List", common_pb2.ListRequest(), text)).code is Code.UNAUTHENTICATED


async def test_a_watch_ends_within_a_second_after_its_token_is_revoked_through_another_replica(emptied: Etcd) -> None:
    async with a_plane(emptied) as here, a_plane(emptied, "replica-2") as there:
        root = await here.token("root", "admin")
        token, text = await there.token_record("ada", "submitter")
        async with watching(here, text) as (watch,):
            await there.ask("Access.RevokeToken", access_pb2.RevokeTokenRequest(id=token.id), root)
            assert await watch.ended() is Code.UNAUTHENTICATED


async def test_watches_end_within_a_second_after_their_tokens_expire(plane: Plane) -> None:
    """Many of them: the timer of a stream and the wall clock need not agree to the microsecond."""
    began = time.monotonic()
    lives = [1.5 + 0.013 * number for number in range(30)]
    tokens = [await plane.token("ada", "submitter", expires_in=life) for life in lives]
    async with watching(plane, *tokens) as watches:
        codes = await asyncio.gather(*(watch.ended(max(lives) + END_SECONDS) for watch in watches))
        assert Counter(codes) == {Code.UNAUTHENTICATED: len(lives)}
    assert time.monotonic() - began < max(lives) + END_SECONDS


async def test_a_watch_ends_when_a_binding_changes_what_its_subject_may_do(plane: Plane) -> None:
    root = await plane.token("root", "admin")
    of_subject = await plane.token("ada", "submitter")
    of_group = await plane.token("carl", "submitter", groups=("painters",))
    grants = (
        access_pb2.Binding(role="viewer", subject="ada", owner="bob"),
        access_pb2.Binding(role="viewer", group="painters"),
    )
    for token, grant in zip((of_subject, of_group), grants, strict=True):
        async with watching(plane, token) as (watch,):
            granted = await plane.ask("Access.Grant", grant, root)
            assert granted.code is Code.OK
            assert await watch.ended() is Code.UNAVAILABLE
        async with watching(plane, token) as (watch,):
            await plane.ask("Access.Ungrant", access_pb2.UngrantRequest(name=granted.messages[0].item.name), root)
            assert await watch.ended() is Code.UNAVAILABLE


async def test_a_stream_of_a_subject_whose_rights_did_not_change_goes_on(plane: Plane) -> None:
    root = await plane.token("root", "admin")
    ada = await plane.token("ada", "submitter", expires_in=3600)
    other, text = await plane.token_record("ada", "submitter")
    async with watching(plane, ada, text) as (watch, revoked):
        await plane.bind("of-bob", "operator", subject="bob")
        await plane.bind("of-a-group", "viewer", group="painters")
        # The grant is one that ada has already.
        await plane.bind("again", "submitter", subject="ada")
        await plane.token("bob", "admin")
        await plane.revoke(other)
        assert await revoked.ended() is Code.UNAUTHENTICATED
        await plane.ask("Access.Ungrant", access_pb2.UngrantRequest(name="of-bob"), root)
        assert (await plane.ask("Jobs.Create", ADA.job(), ada)).code is Code.OK
        assert await watch.next_name() == ADA.job().name


async def test_the_stream_of_a_joblet_ends_with_its_token(plane: Plane) -> None:
    await plane.api.write(plane_objects())
    token, text = await plane.token_record("joan", "joblet", targets=(OTHER_TARGET,))
    stub: Any = joblets_pb2_grpc.JobletsStub(plane.api.channel)
    call = stub.Connect(metadata=transport.credentials(text))
    await call.write(a_hello())
    async with asyncio.timeout(10):
        assert (await call.read()).messages[0].HasField("welcome")
    await plane.revoke(token)
    async with asyncio.timeout(END_SECONDS):
        assert await stream_end(call) is Code.UNAUTHENTICATED


@pytest.mark.parametrize("closed", [True, False], ids=["closed", "open"])
async def test_a_stream_ends_whose_writer_was_cancelled_amid_its_first_answer(emptied: Etcd, closed: bool) -> None:
    """As when a joblet is sent away while its welcome is being written."""
    async with a_plane(emptied) as plane:
        token = await plane.token("root", "admin")
        clock = SystemClock()
        book = AccessBook(plane.api.reads, clock) if closed else None
        ports = GatePorts(plane.api.cache, clock, mint, grpc_calls.refuse, book, AuditLog("", clock))

        async def serve(_requests: Any, context: Any) -> None:
            writing = asyncio.ensure_future(context.write(b"welcome"))
            await asyncio.sleep(0)
            writing.cancel()
            await asyncio.gather(writing, return_exceptions=True)
            raise Invalid("hello", "must be the first message only")

        guarded = AccessGate(ports).guarded("controlplane.v1.Jobs.Watch", serve, stream=True)
        handlers: dict[str, Any] = {"Watch": grpc.stream_stream_rpc_method_handler(guarded)}
        server = grpc.aio.server()
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("controlplane.v1.Jobs", handlers),))
        port = server.add_insecure_port("127.0.0.1:0")
        await server.start()
        try:
            async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
                call: Any = channel.stream_stream("/controlplane.v1.Jobs/Watch")(metadata=transport.credentials(token))
                async with asyncio.timeout(10):
                    assert await stream_end(call) is Code.INVALID_ARGUMENT
        finally:
            await server.stop(0)


async def test_a_token_made_through_another_replica_is_known_at_once(emptied: Etcd) -> None:
    async with a_plane(emptied) as here, a_plane(emptied, "replica-2") as there:
        root = await here.token("root", "admin")
        for number in range(5):
            wish = access_pb2.CreateTokenRequest(subject=f"subject-{number}", roles=["submitter"])
            made = (await there.ask("Access.CreateToken", wish, root)).messages[0]
            answer = await here.ask("Access.WhoAmI", access_pb2.WhoAmIRequest(), made.token)
            assert answer.code is Code.OK, answer
            assert answer.messages[0].name == f"subject-{number}"


async def test_of_100_updates_with_one_revision_exactly_one_wins(emptied: Etcd) -> None:
    async with a_plane(emptied) as here, a_plane(emptied, "replica-2") as there:
        ada = await here.token("ada", "submitter")
        job = (await here.ask("Jobs.Create", ADA.job(), ada)).messages[0]
        order = (await here.ask("Orders.Submit", ADA.order(mint.make()), ada)).messages[0]
        revision = await here.api.store.revision()
        jobs = [ADA.job(region=f"region-{number}", revision=job.revision) for number in range(100)]
        answers = await asyncio.gather(
            *((here, there)[number % 2].ask("Jobs.Update", update, ada) for number, update in enumerate(jobs))
        )
        assert Counter(answer.code for answer in answers) == {Code.OK: 1, Code.ABORTED: 99}
        (won,) = [answer.messages[0].item for answer in answers if answer.code is Code.OK]
        stored = await here.ask("Jobs.Get", common_pb2.GetRequest(name=job.item.name, min_revision=won.revision), ada)
        assert stored.messages[0] == won
        changes = [
            orders_pb2.UpdateOrderRequest(id=order.item.id, revision=order.revision, priority=number % 49 + 51)
            for number in range(100)
        ]
        answers = await asyncio.gather(*(here.ask("Orders.Update", change, ada) for change in changes))
        winners = {answer.messages[0].item.priority for answer in answers if answer.code is Code.OK}
        assert len(winners) == 1
        # The same priority again is no change, and is answered as the winner's.
        assert Counter(answer.code for answer in answers)[Code.OK] <= 3
        assert await here.api.store.revision() == revision + 2


@pytest.mark.parametrize("round_", range(10))
async def test_of_two_administrators_who_revoke_each_other_at_one_moment_one_stays(emptied: Etcd, round_: int) -> None:
    async with a_plane(emptied) as here, a_plane(emptied, "replica-2") as there:
        first, of_first = await here.token_record("root", "admin")
        second, of_second = await here.token_record("toor", "admin")
        await there.api.cache.reached(await here.api.store.revision(), 10)
        revoke = access_pb2.RevokeTokenRequest
        # Each removes the other, or itself: every way must leave one of them.
        pairs = (((first, of_second), (second, of_first)), ((first, of_first), (second, of_second)))[round_ % 2]
        answers = await asyncio.gather(
            *(
                plane.ask("Access.RevokeToken", revoke(id=token.id), text)
                for plane, (token, text) in zip((here, there), pairs, strict=True)
            )
        )
        left = [token for token in await tokens_in(here) if Role.ADMIN in token.roles]
        assert len(left) == 1, answers
        assert Counter(answer.code is Code.OK for answer in answers) == {True: 1, False: 1}


@pytest.mark.parametrize("round_", range(6))
async def test_the_token_and_the_binding_of_two_administrators_cannot_both_go(emptied: Etcd, round_: int) -> None:
    async with a_plane(emptied) as here, a_plane(emptied, "replica-2") as there:
        root, of_root = await here.token_record("root", "admin")
        of_ada = await here.token("ada", "submitter")
        await here.bind("ada-rules", "admin", subject="ada")
        await there.api.cache.reached(await here.api.store.revision(), 10)
        calls = (
            here.ask("Access.RevokeToken", access_pb2.RevokeTokenRequest(id=root.id), of_ada),
            there.ask("Access.Ungrant", access_pb2.UngrantRequest(name="ada-rules"), of_root),
        )
        answers = await asyncio.gather(*(calls if round_ % 2 else reversed(calls)))
        assert Counter(answer.code is Code.OK for answer in answers) == {True: 1, False: 1}, answers


async def tokens_in(plane: Plane) -> list[Any]:
    await plane.api.cache.reached(await plane.api.store.revision(), 10)
    return list(plane.api.cache.snapshot.objects(keys.TOKENS))


async def test_the_last_administrator_cannot_be_removed(plane: Plane) -> None:
    (root,) = await tokens_in(plane)
    await plane.token("ada", "submitter")
    _, text = await plane.token_record("root-2", "admin", expires_in=30)
    answer = await plane.ask("Access.RevokeToken", access_pb2.RevokeTokenRequest(id=root.id), text)
    assert answer.code is Code.OK
    (left,) = [token for token in await tokens_in(plane) if Role.ADMIN in token.roles]
    answer = await plane.ask("Access.RevokeToken", access_pb2.RevokeTokenRequest(id=left.id), text)
    assert answer.code is Code.FAILED_PRECONDITION


async def test_a_subject_is_told_only_that_a_job_of_its_own_was_removed(plane: Plane) -> None:
    """A job that goes to another owner is deleted for the first one, and appears for the second."""
    root, ada = await plane.token("root", "admin"), await plane.token("ada", "submitter")
    bob = await plane.token("bob", "submitter")
    assert (await plane.ask("Jobs.Create", ADA.job(), ada)).code is Code.OK
    await plane.api.cache.reached(await plane.api.store.revision(), 10)
    async with watching(plane, ada, bob) as (of_ada, of_bob):
        moved = await plane.ask("Jobs.Update", jobs_pb2.Job(name=ADA.job().name, command=["x"], owner="bob"), root)
        assert moved.code is Code.OK, moved
        event = await of_ada.call.read()
        assert (event.type, event.object) == ("delete", jobs_pb2.Job(name=ADA.job().name))
        assert await of_bob.next_name() == ADA.job().name
        await plane.ask("Jobs.Update", jobs_pb2.Job(name=ADA.job().name, command=["y"]), root)
        await plane.ask("Jobs.Delete", common_pb2.DeleteRequest(name=ADA.job().name), root)
        assert (await plane.ask("Jobs.Create", ADA.job(name="ada-new", id=""), ada)).code is Code.OK
        assert await of_ada.next_name() == "ada-new"
