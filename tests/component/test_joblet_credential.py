"""The credential of a joblet over a real API: interrupted at every step, and after a restore of etcd."""

from __future__ import annotations

import asyncio
import stat
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import grpc
import msgspec
import pytest
from msgspec.structs import replace

from controlplane.aio.clock import SystemClock, chance
from controlplane.joblet.credential_file import CredentialFile
from controlplane.joblet.credential_keeper import CredentialKeeper, Enrolment
from controlplane.joblet.enrolment_calls import EnrolmentCalls
from controlplane.joblet.replica_channels import ReplicaChannels
from controlplane.joblet.shown_credential import ShownCredential
from controlplane.model.access import FormerToken, token_digest
from controlplane.model.credential import StoredCredential
from controlplane.model.errors import IllegalTransition, Invalid, Unauthenticated
from controlplane.model.settings import Settings
from controlplane.store import keys
from controlplane.wire import transport
from controlplane.wire.v1 import access_pb2, targets_pb2
from tests.component.access_stage import Plane, a_plane
from tests.component.api_stage import mint
from tests.component.test_access_enrolment import TARGET, a_text, an_enrolment, is_known, record
from tests.etcd import Etcd

# Nobody listens there.
DEAD = "127.0.0.1:9"


@pytest.fixture
async def plane(emptied: Etcd) -> AsyncIterator[Plane]:
    async with a_plane(emptied) as started:
        yield started


class Joblet:
    """The part of a joblet that keeps its credential."""

    def __init__(
        self, plane: Plane, folder: Path, token: str = "", *, one_time: bool = True, endpoints: tuple[str, ...] = ()
    ) -> None:
        self.shown = ShownCredential(None)
        self.file = CredentialFile(str(folder))
        self._channels = ReplicaChannels(endpoints or (DEAD, plane.api.address), 1, self.shown)
        self.keeper = CredentialKeeper(
            Enrolment((TARGET,), "process", targets_pb2.Target(), token, one_time),
            self.file,
            EnrolmentCalls(self._channels),
            self.shown,
            clock=SystemClock(),
            chance=chance,
            make_identity=mint.make,
        )

    @property
    def stored(self) -> StoredCredential:
        stored = self.file.read()
        assert stored is not None
        return stored

    @asynccontextmanager
    async def running(self) -> AsyncIterator[asyncio.Task[None]]:
        task = asyncio.get_running_loop().create_task(self.keeper.run())
        try:
            yield task
        finally:
            task.cancel()
            with suppress(asyncio.CancelledError, Unauthenticated, IllegalTransition):
                await task
            await self._channels.close()

    async def is_shown(self) -> str:
        """The text that replicas see."""
        async with asyncio.timeout(10):
            ((_, value),) = await self.shown.metadata()
        return value.removeprefix("Bearer ")


async def test_a_joblet_enrols_through_the_replica_that_lives_and_keeps_its_credential(
    plane: Plane, tmp_path: Path
) -> None:
    made = await an_enrolment(plane)
    joblet = Joblet(plane, tmp_path, made.token)
    async with joblet.running():
        text = await joblet.is_shown()
        assert await is_known(plane, text)
    assert (joblet.stored.token, joblet.stored.id) == (text, made.item.id)
    assert stat.S_IMODE((tmp_path / "credential").stat().st_mode) == 0o600
    # The next joblet of the folder asks nobody.
    before = await plane.api.store.revision()
    later = Joblet(plane, tmp_path, made.token)
    async with later.running():
        assert await later.is_shown() == text
    assert await plane.api.store.revision() == before


@asynccontextmanager
async def an_old_replica() -> AsyncIterator[tuple[str, list[str]]]:
    """The address of a replica without the service, and the methods that it was asked for."""
    asked: list[str] = []

    class Unknown(grpc.GenericRpcHandler):
        def service(self, handler_call_details: Any) -> None:
            asked.append(handler_call_details.method)

    server = grpc.aio.server()
    server.add_generic_rpc_handlers((Unknown(),))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    try:
        yield f"127.0.0.1:{port}", asked
    finally:
        await server.stop(0)


async def test_beside_a_replica_of_an_older_version_another_one_enrols(plane: Plane, tmp_path: Path) -> None:
    made = await an_enrolment(plane)
    async with an_old_replica() as (old, _):
        joblet = Joblet(plane, tmp_path, made.token, endpoints=(old, plane.api.address))
        async with joblet.running():
            assert await is_known(plane, await joblet.is_shown())


async def test_where_all_replicas_are_older_a_token_is_shown_as_it_is_and_asked_for_once(
    plane: Plane, tmp_path: Path
) -> None:
    async with an_old_replica() as (old, asked):
        joblet = Joblet(plane, tmp_path, "cp_of_a_person", one_time=False, endpoints=(old, DEAD))
        async with joblet.running():
            assert await joblet.is_shown() == "cp_of_a_person"
            await asyncio.sleep(0.3)
    assert sorted(method.rpartition("/")[2] for method in asked) == ["Enrol", "Renew"]


async def test_where_all_replicas_are_older_a_one_time_token_is_refused(plane: Plane, tmp_path: Path) -> None:
    async with an_old_replica() as (old, _):
        joblet = Joblet(plane, tmp_path, a_text("e"), endpoints=(old,))
        async with joblet.running() as task:
            with pytest.raises(IllegalTransition, match="enrols no joblets"):
                async with asyncio.timeout(10):
                    await asyncio.shield(task)


async def test_an_enrolment_whose_answer_was_lost_is_found_again_also_when_the_token_has_ended(
    plane: Plane, tmp_path: Path
) -> None:
    made = await an_enrolment(plane)
    CredentialFile(str(tmp_path)).write(
        StoredCredential(targets=(TARGET,), driver="process", id=mint.make(), next_token=a_text("n"))
    )
    request = access_pb2.EnrolRequest(targets=[TARGET], driver="process", digest=token_digest(a_text("n")))
    await plane.ask("Access.Enrol", request, made.token)
    token = await record(plane, made.item.id)
    assert token.former is not None
    ended = replace(token, former=replace(token.former, expires="2020-01-01T00:00:00.000Z"))
    await plane.api.write({f"{keys.TOKENS.prefix}{token.id}": ended})
    joblet = Joblet(plane, tmp_path, made.token)
    async with joblet.running():
        assert await joblet.is_shown() == a_text("n")
    assert (joblet.stored.token, joblet.stored.id) == (a_text("n"), made.item.id)


async def test_a_used_up_token_without_a_credential_is_an_error_that_names_the_next_command(
    plane: Plane, tmp_path: Path
) -> None:
    made = await an_enrolment(plane)
    first = Joblet(plane, tmp_path / "first", made.token)
    (tmp_path / "first").mkdir()
    async with first.running():
        await first.is_shown()
    (tmp_path / "second").mkdir()
    second = Joblet(plane, tmp_path / "second", made.token)
    async with second.running() as task:
        with pytest.raises(Unauthenticated, match=f"used up.*cpctl enrol {TARGET}"):
            async with asyncio.timeout(10):
                await asyncio.shield(task)


async def enrolled(plane: Plane, folder: Path) -> tuple[str, str]:
    """The id and the text of a credential that the folder has."""
    made = await an_enrolment(plane)
    joblet = Joblet(plane, folder, made.token)
    async with joblet.running():
        return made.item.id, await joblet.is_shown()


def due(folder: Path) -> None:
    """The credential of the folder is older than a day."""
    file = CredentialFile(str(folder))
    stored = file.read()
    assert stored is not None
    file.write(replace(stored, renewed=stored.renewed - 2 * 86400))


async def until_shown_other_than(joblet: Joblet, text: str) -> str:
    async with asyncio.timeout(10):
        while (now := await joblet.is_shown()) == text:
            await joblet.shown.replaced(transport.credentials(text), within_seconds=1)
    return now


async def test_a_due_credential_is_renewed_under_the_same_id(plane: Plane, tmp_path: Path) -> None:
    identity, text = await enrolled(plane, tmp_path)
    due(tmp_path)
    joblet = Joblet(plane, tmp_path)
    async with joblet.running():
        renewed = await until_shown_other_than(joblet, text)
    assert await is_known(plane, renewed)
    assert (await record(plane, identity)).digest == token_digest(renewed)
    assert (joblet.stored.token, joblet.stored.former, joblet.stored.next_token) == (renewed, (text,), "")


async def test_a_renewal_whose_answer_was_lost_locks_nobody_out_even_after_the_former_text_ended(
    plane: Plane, tmp_path: Path
) -> None:
    identity, text = await enrolled(plane, tmp_path)
    file = CredentialFile(str(tmp_path))
    file.write(replace(Joblet(plane, tmp_path).stored, next_token=a_text("n")))
    due(tmp_path)
    token = await record(plane, identity)
    former = FormerToken(digest=token.digest, roles=("joblet",), expires="2020-01-01T00:00:00.000Z")
    taken_over = replace(token, digest=token_digest(a_text("n")), former=former)
    await plane.api.write({f"{keys.TOKENS.prefix}{identity}": taken_over})
    assert not await is_known(plane, text)
    joblet = Joblet(plane, tmp_path)
    async with joblet.running():
        assert await until_shown_other_than(joblet, text) == a_text("n")


async def test_after_a_restore_a_text_of_an_earlier_day_is_good_again(plane: Plane, tmp_path: Path) -> None:
    identity, text = await enrolled(plane, tmp_path)
    backup = await record(plane, identity)
    due(tmp_path)
    joblet = Joblet(plane, tmp_path)
    async with joblet.running():
        renewed = await until_shown_other_than(joblet, text)
        await plane.api.write({f"{keys.TOKENS.prefix}{identity}": backup})
        assert not await is_known(plane, renewed)
        joblet.shown.deny(transport.credentials(renewed))
        assert await is_known(plane, await until_shown_other_than(joblet, renewed))


async def test_a_revoked_credential_of_the_folder_is_an_error_that_names_the_next_command(
    plane: Plane, tmp_path: Path
) -> None:
    identity, _ = await enrolled(plane, tmp_path)
    await plane.revoke(await record(plane, identity))
    joblet = Joblet(plane, tmp_path)
    async with joblet.running() as task:
        joblet.shown.deny(transport.credentials(await joblet.is_shown()))
        with pytest.raises(Unauthenticated, match=f"revoked, or has expired; `cpctl enrol {TARGET}`"):
            async with asyncio.timeout(10):
                await asyncio.shield(task)
    # With a new token the same folder is enrolled again.
    made = await an_enrolment(plane)
    again = Joblet(plane, tmp_path, made.token)
    async with again.running():
        old = await again.is_shown()
        again.shown.deny(transport.credentials(old))
        assert await is_known(plane, await until_shown_other_than(again, old))
    assert again.stored.id == made.item.id


async def test_a_joblet_that_was_welcomed_and_then_revoked_stays_out_and_does_not_enrol_anew(
    plane: Plane, tmp_path: Path
) -> None:
    operator = await plane.token("olga", "operator")
    joblet = Joblet(plane, tmp_path, operator, one_time=False)
    async with joblet.running() as task:
        text = await joblet.is_shown()
        assert text != operator
        joblet.shown.was_accepted = True
        await plane.revoke(await record(plane, joblet.stored.id))
        before = await plane.api.store.revision()
        joblet.shown.deny(transport.credentials(text))
        # The keeper has tried every text when it waits for its next look.
        async with asyncio.timeout(10):
            while not joblet.stored.next_token:
                await asyncio.sleep(0.02)
        await joblet.shown.replaced(transport.credentials(text), within_seconds=1)
        assert not task.done()
        assert await joblet.is_shown() == text
        assert await plane.api.store.revision() == before


async def test_the_token_of_a_joblet_is_shown_as_it_is(plane: Plane, tmp_path: Path) -> None:
    token = await plane.token("joan", "joblet", targets=(TARGET,))
    joblet = Joblet(plane, tmp_path, token, one_time=False)
    async with joblet.running():
        assert await joblet.is_shown() == token


async def test_short_lifetimes_are_renewed_again_and_again(plane: Plane, tmp_path: Path) -> None:
    await plane.api.write({keys.SETTINGS: Settings(joblet_credential=7)})
    _, text = await enrolled(plane, tmp_path)
    joblet = Joblet(plane, tmp_path)
    async with joblet.running():
        texts = [text]
        while len(texts) < 4:
            texts.append(await until_shown_other_than(joblet, texts[-1]))
    assert len(set(texts)) == 4


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'{"token": 7}', b"\xff" * 100])
def test_a_damaged_file_is_named(tmp_path: Path, content: bytes) -> None:
    file = CredentialFile(str(tmp_path))
    (tmp_path / "credential").write_bytes(content)
    (tmp_path / "credential").chmod(0o600)
    with pytest.raises(Invalid, match=r"^credential: .*/credential is damaged"):
        file.read()


def test_a_file_that_others_may_read_and_a_link_are_refused(tmp_path: Path) -> None:
    stored = StoredCredential(targets=(TARGET,), driver="process", id="x", token="t")
    file = CredentialFile(str(tmp_path))
    (tmp_path / "credential").write_bytes(msgspec.json.encode(stored))
    (tmp_path / "credential").chmod(0o644)
    with pytest.raises(Invalid, match="mode 0600"):
        file.read()
    (tmp_path / "credential").rename(tmp_path / "other")
    (tmp_path / "credential").symlink_to(tmp_path / "other")
    with pytest.raises(Invalid, match="cannot be read"):
        file.read()
    # A write replaces whatever lies there.
    file.write(stored)
    assert file.read() == stored
