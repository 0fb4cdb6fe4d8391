"""`controlplane bootstrap`: the first administrator of a plane, made by whoever holds etcd's credentials."""

from __future__ import annotations

import grpc
import pytest

from controlplane.aio.clock import SystemClock, chance
from controlplane.model.errors import AlreadyExists
from controlplane.standalone.first_access import first_administrator
from controlplane.wire.v1 import common_pb2
from tests.component.access_stage import Plane, a_plane
from tests.etcd import Etcd


async def bootstrap(plane: Plane, *, force: bool = False) -> str:
    return await first_administrator(plane.api.store, SystemClock(), chance, force=force)


async def test_the_first_administrator_is_made_once_and_again_by_force(emptied: Etcd) -> None:
    async with a_plane(emptied) as plane:
        first = await bootstrap(plane)
        assert (await plane.ask("Rules.List", common_pb2.ListRequest(), first)).code is grpc.StatusCode.OK
        before = await plane.api.store.revision()
        with pytest.raises(AlreadyExists, match="administrators already"):
            await bootstrap(plane)
        assert await plane.api.store.revision() == before
        second = await bootstrap(plane, force=True)
        assert second != first
        for token in (first, second):
            assert (await plane.ask("Rules.List", common_pb2.ListRequest(), token)).code is grpc.StatusCode.OK


@pytest.mark.parametrize(
    ("expires_in", "bound", "there"),
    [(None, "ada", True), (3600, "ada", True), (-1, "ada", False), (None, "bob", False)],
)
async def test_a_subject_bound_to_the_role_is_an_administrator_while_its_token_lasts(
    emptied: Etcd, expires_in: float | None, bound: str, there: bool
) -> None:
    async with a_plane(emptied) as plane:
        await plane.token("ada", "submitter", expires_in=expires_in)
        await plane.bind("admins", "admin", subject=bound)
        if there:
            with pytest.raises(AlreadyExists):
                await bootstrap(plane)
        else:
            assert await bootstrap(plane)
